"""The tensor engine (STOD): from moments in a basis to topics and their Dirichlet prior. No pass over the data.

Start with ``engine``, which whitens; ``power`` decomposes the tensor and ``recovery`` computes the topics.
"""
