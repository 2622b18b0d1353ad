"""Formats that are read by a function, a module each: from a file to record batches of Arrow, one row a document.

See ``readers.functions`` for the columns of the record batches, which functions of users yield, too.
"""
