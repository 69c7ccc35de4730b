"""The evaluations of THEMIS and Tiresias, simulated anew: what ``themis reproduce`` runs.

A figure is a description (:mod:`themis_ray.reproduce.figure`): the runs that it needs, how its
values follow from them, what was published, and what should hold. Figures share runs;
:mod:`themis_ray.reproduce.runner` does each one once, in several processes, and keeps the outcome
on disk, so that a study that was interrupted goes on where it was.
"""
