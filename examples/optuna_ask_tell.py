"""An Optuna search with a pruner, without Tune, on GPUs that it shares with other searches.

Run it beside other apps of the cluster; `themis status` shows it. Needs `themis_ray[optuna]`.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import optuna
import ray

from themis_ray.agent.external import ExternalApp, ExternalLease


@ray.remote
class Trainer:
    """Logistic regression on two noisy clusters: an epoch of gradient descent at each step."""

    def __init__(self, lr: float, l2: float, weights: np.ndarray | None) -> None:
        rng = np.random.default_rng(0)
        self.y = rng.integers(0, 2, 4000)
        self.x = rng.normal(size=(4000, 50)) + 0.3 * self.y[:, None]
        self.lr, self.l2 = lr, l2
        self.w = np.zeros(50) if weights is None else weights.copy()

    def epoch(self) -> float:
        p = 1 / (1 + np.exp(-np.clip(self.x @ self.w, -30, 30)))
        self.w -= self.lr * (self.x.T @ (p - self.y) / len(self.y) + self.l2 * self.w)
        return float(-np.mean(np.log(np.where(self.y == 1, p, 1 - p) + 1e-9)))

    def save(self) -> np.ndarray:
        return self.w


def on_lease(lease: ExternalLease, trial: optuna.Trial, saved: np.ndarray | None) -> np.ndarray:
    """Train until the trial is over, or the GPUs are somebody else's; returns a checkpoint."""
    job, params = lease.job, trial.params
    trainer = Trainer.options(**lease.options()).remote(params["lr"], params["l2"], saved)
    while not (job.done or lease.should_leave):
        trial.report(ray.get(trainer.epoch.remote()), int(job.iterations_done))
        lease.report()
        if trial.should_prune():
            job.finish()
    return ray.get(trainer.save.remote())


def run(app: ExternalApp, study: optuna.Study) -> None:
    """One trial, over as many leases as it takes."""
    trial = study.ask()
    trial.suggest_float("lr", 1e-3, 10.0, log=True)
    trial.suggest_float("l2", 1e-6, 1e-1, log=True)
    job, saved = app.job(f"trial-{trial.number}"), None
    while not job.done:
        with job.lease() as lease:
            saved = on_lease(lease, trial, saved)
    pruned = job.iterations_done < job.iterations
    losses = study.trials[trial.number].intermediate_values
    state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
    study.tell(trial, None if pruned else losses[max(losses)], state=state)


def main(
    name: str = "optuna", trials: int = 12, at_once: int = 4, epochs: int = 50
) -> optuna.Study:
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=3),
    )
    app = ExternalApp(name, jobs=trials, iterations_per_job=epochs, at_once=at_once)
    with app, ThreadPoolExecutor(at_once) as threads:
        for done in [threads.submit(run, app, study) for _ in range(trials)]:
            done.result()
    print(f"{name}: best loss {study.best_value:.4f} with {study.best_params}")
    return study


if __name__ == "__main__":
    main(*sys.argv[1:2])
