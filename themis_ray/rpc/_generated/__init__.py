"""Written by `python -m themis_ray.rpc.generate`; do not edit."""
