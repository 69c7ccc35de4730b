"""Published distributions that the generators draw from.

Those of THEMIS are read off the vector paths of its figures (NSDI '20, Mahajan et al.), to about
0.01 of an axis. Those of Philly are taken from the traces that Microsoft published
(msr-fiddle/philly-traces, CC-BY-4.0), 82,247 jobs of ten weeks.
"""

from __future__ import annotations

# THEMIS, Figure 4: GPU-minutes of a task. (fraction of tasks, GPU-minutes). The figure's curve
# starts near 20.
TASK_GPU_MINUTES = (
    (0.0, 20.0),
    (0.10, 80.0),
    (0.25, 140.0),
    (0.50, 226.0),
    (0.75, 341.0),
    (0.90, 458.0),
    (1.0, 1591.0),
)

# THEMIS, Figure 8b: jobs per app in the evaluation, each app of the figure one entry.
JOBS_PER_APP_W1 = (1, 10, 20, 20, 43, 56, 56, 70, 81, 91)
# fmt: off
JOBS_PER_APP_W2 = (
    1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 5, 5, 5, 6, 7,
    8, 9, 10, 11, 13, 14, 20, 24, 25, 27, 29, 65, 78, 88, 90,
)
# fmt: on

# THEMIS, Figure 8a: GPUs per job.
GPUS_PER_JOB_W1 = {1: 0.705, 2: 0.295}
GPUS_PER_JOB_W2 = {1: 0.233, 2: 0.157, 4: 0.61}

# THEMIS, Table 4: the mix of models, by category; models within one are equally likely.
MODEL_MIX = {
    ("vgg16", "vgg19", "alexnet", "inception3", "resnet50"): 0.10,
    ("bi_att_flow", "language_model", "gnmt", "transformer"): 0.60,
    ("wavenet", "deepspeech2"): 0.30,
}
# THEMIS, section 8.5: apps that mind the network, and apps that do not.
NETWORK_MODELS = ("vgg16", "vgg19", "alexnet")
COMPUTE_MODELS = ("resnet50", "inception3")

# Tiresias (NSDI '19), section 6.1: the 480 jobs of its testbed run, (GPUs, jobs); Poisson arrivals
# with a mean of 30 s; 2 minutes to 2 hours. Its ten models are those of Table 3.
TIRESIAS_JOBS = ((1, 240), (2, 40), (4, 80), (8, 90), (16, 25), (32, 5))
TIRESIAS_GAP_S = 30.0
TIRESIAS_DURATION_S = (120.0, 7200.0)
# fmt: off
TIRESIAS_MODELS = (
    "vgg19", "vgg16", "vgg11", "alexnet", "resnet152",
    "resnet101", "resnet50", "inception4", "inception3", "googlenet",
)
# fmt: on

# Philly: GPUs per job (jobs of 12, 24, 64 and 128 GPUs, 23 in all, left out), and quantiles of the
# time that a job runs, in seconds.
PHILLY_GPUS = {1: 76627, 2: 1818, 4: 1870, 8: 1643, 16: 199, 32: 67}
PHILLY_DURATION_S = (
    (0.0, 1.0),
    (0.01, 17.0),
    (0.05, 48.0),
    (0.10, 61.0),
    (0.25, 115.0),
    (0.50, 1144.0),
    (0.75, 2932.0),
    (0.90, 11265.0),
    (0.95, 43646.0),
    (0.99, 254758.0),
    (0.999, 1186277.0),
    (1.0, 4628226.0),
)
