"""Tuning algorithms behind the AGENT API (``import themis_ray.searchers``).

The API itself is :mod:`themis_ray.searchers.api`; :mod:`themis_ray.searchers.registry` says
which adapter goes with which Tune scheduler.
"""

from .api import (
    AllTrials,
    AppState,
    JobInfo,
    PhaseSearch,
    RemainingSearch,
    Search,
    TrialInfo,
    median_jobs,
    share_out,
    time_left_s,
)
from .registry import register, search_for

__all__ = [
    "AllTrials",
    "AppState",
    "JobInfo",
    "PhaseSearch",
    "RemainingSearch",
    "Search",
    "TrialInfo",
    "median_jobs",
    "register",
    "search_for",
    "share_out",
    "time_left_s",
]
