"""Model stores: one Zarr group for one number of topics, arrays and JSON alone.

Start with ``store``, which reads and writes them; ``variables`` registers every array with its axes and meaning.
``certificates`` tells from a model's metrics what makes it doubtful, ``counts`` keeps what ``evaluate`` has counted
beside it. Imports ``storage`` and below.
"""
