"""Adapters for the schedulers that come with Ray Tune; importing this registers them all."""

from . import asha, curve_stopping, fifo, hyperband, median, pbt

__all__ = ["asha", "curve_stopping", "fifo", "hyperband", "median", "pbt"]
