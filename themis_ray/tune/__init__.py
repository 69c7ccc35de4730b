"""Ray Tune: the scheduler, its placement groups and its callbacks."""
