"""An app's fair share of the cluster, R / N, and how far the app is behind it."""

from __future__ import annotations

from themis_ray.core.policies.base import AppView, RoundView

LEAST_R = 0.05


def fair_share(app: AppView, view: RoundView) -> float:
    """R / N: the GPUs that an app would have alone on its share of the cluster; not 0."""
    return max(1e-9, view.cluster.gpus * app.weight / max(1.0, app.n_avg))


def fair_r(app: AppView, view: RoundView) -> float:
    """r of an app that has its fair share from now on: 1 plus how far it is behind, over T_id.

    It has lived ``elapsed`` and has been given what a fair share gives in ``attained / share``;
    the difference is what it will be late. The share counts no further than the app could use:
    its demand now, or the mean that it has held when that is more (its demand was greater once).
    """
    t_ideal, elapsed = app.report.t_ideal_s, view.now_s - app.joined_s
    if not t_ideal > 0 or elapsed <= 0:
        return 1.0
    usable = max(float(app.report.wants), app.attained_gpu_s / elapsed, 1e-9)
    fair_s = app.attained_gpu_s / min(fair_share(app, view), usable)
    return max(LEAST_R, 1 + (elapsed - fair_s) / t_ideal)
