"""Rectification of moments: low rank, positive semidefinite, non-negative, as moments of topics must be.

``enn`` is the default (LR-JSMF, Algorithm 3), with its products in ``enn_operator``; ``alternating`` (AP, Dykstra),
``palm`` and ``diagonal`` serve comparisons. All return a ``result.Rectification``. Pure functions of arrays; imports
``linalg`` and below.
"""
