"""Maximum Nash welfare over bid tables, with a certificate."""

from themis_ray.core.solver.deadline import Deadline
from themis_ray.core.solver.nash import NO_HARM, Harm, NashSolver, Wanted
from themis_ray.core.solver.outcome import Outcome, Win

__all__ = ["NO_HARM", "Deadline", "Harm", "NashSolver", "Outcome", "Wanted", "Win"]
