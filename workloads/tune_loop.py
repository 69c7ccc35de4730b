"""A Tune trial around a trainer: restore, train, report, save, and be in time for a lease's end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune

from ..errors import ConfigError
from ..lease import CurrentLease, current_lease
from .elastic import ElasticTrainer

_LOOK_EVERY_S = 1.0
"""How much training goes by between two looks at the lease, in seconds."""


def run_trial(
    trainer: ElasticTrainer,
    *,
    steps_per_report: int,
    max_steps: int | None = None,
    checkpoint_every: int = 1,
    metrics: Callable[[], Mapping[str, Any]] | None = None,
) -> None:
    """Be the body of a function trainable.

    It continues from the trial's checkpoint if there is one, reports ``loss``, ``train_step`` and
    the measurements that bids are made of, and saves with the reports. When notice is given it
    saves at the next report, and reports early if the lease would end before that.

    Args:
        trainer: The job, fresh.
        steps_per_report: Steps between two reports; one of Tune's iterations.
        max_steps: Steps after which the trial is done; ``None`` leaves it to Tune.
        checkpoint_every: Reports between two checkpoints.
        metrics: More to report, such as a validation score.
    """
    for name, value in (
        ("steps_per_report", steps_per_report),
        ("checkpoint_every", checkpoint_every),
    ):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    start = tune.get_checkpoint()
    if start is not None:
        trainer.restore(start.path, filesystem=start.filesystem)
    reports = 0
    while max_steps is None or trainer.step < max_steps:
        steps = steps_per_report
        if max_steps is not None:
            steps = min(steps, max_steps - trainer.step)
        loss = train_until_report(trainer, steps)
        reports += 1
        report = {"loss": loss, **measurements(trainer), **(metrics() if metrics else {})}
        done = trainer.step == max_steps
        report_and_save(report, trainer.save, done or reports % checkpoint_every == 0)


def report_and_save(report: dict[str, Any], save: Callable[[str], Any], due: bool) -> None:
    """Report to Tune, with a checkpoint when one is due or notice has been given.

    Args:
        report: The metrics.
        save: Writes a checkpoint to a folder.
        due: Whether there should be one anyway.
    """
    lease = current_lease()
    if not due and (lease is None or not lease.should_checkpoint()):
        tune.report(report)
        return
    with tempfile.TemporaryDirectory() as directory:
        save(directory)
        tune.report(report, checkpoint=tune.Checkpoint.from_directory(directory))


def train_until_report(trainer: ElasticTrainer, steps: int) -> float:
    """Do the steps of a report, or fewer if the lease ends before they can be done.

    Returns:
        The mean loss over the steps done.
    """
    lease = current_lease()
    if lease is None:
        return trainer.run(steps)
    total, done = 0.0, 0
    while done < steps:
        part = min(steps - done, _steps_between_looks(trainer))
        total += trainer.run(part) * part
        done += part
        if _ends_before(lease, (steps - done) * trainer.iter_s):
            break
    return total / done


def measurements(trainer: ElasticTrainer) -> dict[str, Any]:
    """What each report tells of the job: see :meth:`.trainable.ClassifierJob.advance`."""
    return {
        "train_step": trainer.step,
        "themis/iter_s": trainer.iter_s,
        "themis/iter_spread_s": trainer.timing.spread_s,
        "themis/gpus": trainer.processes,
        "themis/placement": str(trainer.placement),
        "themis/skew": trainer.skew.share,
    }


def _steps_between_looks(trainer: ElasticTrainer) -> int:
    iter_s = trainer.iter_s
    # Not a number before the first step.
    return max(1, int(_LOOK_EVERY_S / iter_s)) if iter_s > 0 else 1


def _ends_before(lease: CurrentLease, needed_s: float) -> bool:
    return lease.should_checkpoint() and needed_s > lease.seconds_left
