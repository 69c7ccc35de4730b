"""The scheduler's pure core: no I/O, no clock, no Ray. ``now`` is always an argument."""
