"""Rectification of moments: make them low-rank, positive semidefinite and non-negative, like moments of topics.

``enn`` is the default (LR-JSMF, Algorithm 3); ``ap`` (Algorithm 2) and ``palm`` (Algorithm 4) are for comparison. All
return a ``result.Rectification``. Pure functions of arrays; imports ``linalg`` and below.
"""
