"""Driver 2 of the core: the same arbiter and policies in virtual time."""
