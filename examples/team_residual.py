"""The other team's search: ResNet50 and Inception v3 under the median stopping rule."""

import os

from ray import tune
from ray.tune.schedulers import MedianStoppingRule

from themis_ray import ThemisMLflowCallback, ThemisScheduler
from themis_ray.workloads import ImageClassifierTrainable

tune.run(
    ImageClassifierTrainable,
    name="residual",
    config={
        "model": tune.grid_search(["resnet50", "inception_v3"]),
        "lr": tune.grid_search([0.001, 0.01]),
        "global_batch": 8,
        "steps_per_report": 2,
    },
    resources_per_trial={"cpu": 0.5, "gpu": 1},
    stop={"training_iteration": 10},
    metric="loss",
    mode="min",
    scheduler=ThemisScheduler(
        # Without a time slice the rule pauses its trials in turn as long as it has few results.
        MedianStoppingRule(
            time_attr="training_iteration",
            grace_period=5,
            min_samples_required=2,
            min_time_slice=100,
        ),
        app="team-residual",
    ),
    callbacks=[ThemisMLflowCallback()],
    storage_path=os.path.abspath("results"),
    verbose=0,
)
