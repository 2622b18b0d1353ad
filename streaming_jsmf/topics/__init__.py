"""Model stores: one Zarr group for one number of topics, arrays and JSON alone.

Start with ``store``, which reads and writes them; ``variables`` registers every array with its axes and meaning.
``edits`` keeps what people say of topics beside it, ``shown`` makes of the stored topics those that people see.
``certificates`` tells from a model's metrics what makes it doubtful, ``counts`` keeps what ``evaluate`` has counted
beside it. Imports ``storage`` and below.
"""
