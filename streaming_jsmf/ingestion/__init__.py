"""Convert a source to a corpus. ``ingest`` plans, reads, chooses words and writes; each step can be resumed.

``sources`` finds files and reads documents, ``formats`` has the kinds of files, and ``tokens`` tokenizes texts.
"""
