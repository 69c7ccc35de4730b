"""One team's search: VGG16 under ASHA. Plain ``tune.run``, with a Themis scheduler."""

import os

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from themis_ray import ThemisMLflowCallback, ThemisScheduler
from themis_ray.workloads import ImageClassifierTrainable

tune.run(
    ImageClassifierTrainable,
    name="vgg",
    config={
        "model": "vgg16",
        "width": 256,  # a narrow head: the checkpoint fits a laptop's disk
        "lr": tune.grid_search([0.003, 0.01, 0.03]),
        "global_batch": 8,
        "steps_per_report": 2,
    },
    resources_per_trial={"cpu": 0.5, "gpu": 1},
    metric="loss",
    mode="min",
    scheduler=ThemisScheduler(
        ASHAScheduler(max_t=10, grace_period=4, reduction_factor=2), app="team-vgg"
    ),
    callbacks=[ThemisMLflowCallback()],
    storage_path=os.path.abspath("results"),
    verbose=0,
)
