"""Passes over documents with a given model: topic shares (``transform``) and queries of them.

``shares`` defines topic shares, ``share_files`` their files; ``transform_job`` computes them in tasks. ``interop``
exchanges corpora and models with other libraries.
"""
