"""Experiments and examples built on the package: `python -m pipelines.NAME --help`, in a checkout."""
