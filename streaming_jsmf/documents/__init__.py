"""Passes over documents with a given model: topic shares (``transform``), queries, and exchange with other libraries."""
