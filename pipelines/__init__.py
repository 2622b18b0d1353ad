"""Scripts on top of the package: `python -m pipelines.NAME --help`, in a checkout."""
