"""From shards to blocks of H: row groups as units of work, partitions of them, and CSR blocks.

Start with ``units``, which plans from footers alone; ``csr`` reads a row group, ``parts`` makes partitions the parts
of a job, ``dask_array`` shows H as a Dask array. Imports ``corpus``, ``jobs`` and below.
"""
