"""Moments made what those of topics must be: low in rank, positive, non-negative. Pure functions of arrays.

``enn`` is the default (LR-JSMF, Algorithm 3), with its products in ``enn_operator`` and what it leaves out in
``omitted``; ``alternating`` (AP, Dykstra), ``palm`` and ``diagonal`` are to compare with. All give a
``result.Rectification``. Imports ``linalg`` and below.
"""
