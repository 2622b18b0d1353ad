"""Topic inference: topics from rectified moments, and topic shares of documents. Pure functions of arrays.

Start with ``law``, the low-rank anchor word algorithm. ``stod`` is the tensor engine, ``document_topics`` computes
topic shares, and ``polish`` improves topics with steps over the documents. Imports ``linalg`` and below.
"""
