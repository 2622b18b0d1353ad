"""Passes over documents with a given model: topic shares (``transform``), queries, and data exchange."""
