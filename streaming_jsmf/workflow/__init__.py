"""Stages put together, one function for each verb: ``ingest``, ``simulate``, ``scan``, ``infer``, ``fit``, ``polish``,
``transform``, ``documents``, ``evaluate``, ``report``, ``info``.

Each reads what is committed, calls the rooms below, and commits; none knows who asked. Start with ``fit``.
"""
