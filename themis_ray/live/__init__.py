"""Driver 1 of the core: the ARBITER as a detached Ray actor that leases placement groups."""
