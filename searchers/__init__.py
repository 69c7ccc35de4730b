"""Tuning algorithms behind the AGENT API (``import themis_ray.searchers``)."""
