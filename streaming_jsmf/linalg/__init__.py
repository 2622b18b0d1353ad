"""Numerical kernels: factors and eigenpairs, sparse products, third-order tensors, simplex least squares.

Functions of arrays; bits do not depend on the number of threads. Start with ``sampled`` for the eigenpairs of a scan
and ``simplex`` for least squares. Imports ``config`` and below.
"""
