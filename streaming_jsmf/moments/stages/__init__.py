"""The stages of a moments store, one module each, from the scan to the final arrays.

A module defines a *reduction*, which runs on the workers (``compute`` a partition, ``fold`` two results), and a
*stage* (see ``base``). Read ``projection`` first; it is the shortest. To add a stage, add a module and a line in
``registry.STAGES``. Stages access their store only through ``base.Store``.
"""
