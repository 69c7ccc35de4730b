"""Maximum Nash welfare over bid tables, with a certificate."""

from themis_ray.core.solver.direct import DirectSolver as NashSolver
from themis_ray.core.solver.outcome import Outcome, Win

__all__ = ["NashSolver", "Outcome", "Win"]
