"""Adapters for the schedulers that come with Ray Tune; importing this registers them all."""

from . import asha, fifo, hyperband, median, pbt

__all__ = ["asha", "fifo", "hyperband", "median", "pbt"]
