"""The tensor engine (STOD): from moments in a basis to topics and their Dirichlet prior. No pass over the data.

Start with ``engine``, which whitens the moments; ``power`` decomposes the tensor, ``recovery`` computes the topics.
"""
