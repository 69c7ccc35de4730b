#!/bin/sh
# Checks what only a GPU can show, on a machine with one NVIDIA GPU, in under five minutes, and prints
# the results as Markdown for docs/gpu.md:
#
#     pip install -e '.[workloads]'
#     sh tests/gpu/check.sh > gpu.txt
#
# PYTHON names another interpreter. With --cpu it tries itself out at toy sizes where there is no GPU.
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" tests/gpu/gpu_check.py "$@"
