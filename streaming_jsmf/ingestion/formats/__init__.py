"""Formats of files, a module each.

Parquet, delimited text, JSON lines and lines are divided among tasks (``sources.protocol.Format``). The others are
functions from a file to record batches of Arrow, one row a document, as those of users (``formats.functions``).
"""
