"""The tensor engine (STOD): moments in a basis to topics and their Dirichlet prior. No data.

Read ``engine`` first: it whitens (``whitening``), decomposes (``power``) and recovers topics (``recovery``).
"""
