"""Kernels: factors and eigenpairs, sparse products, tensors of documents, simplex least squares. Arrays in, arrays out.

Compiled where a loop over documents or words is long. All are compared with dense, slow ones in the tests; the bits
do not depend on threads. Start with ``factor`` for the scan, with ``simplex`` for the least squares. Imports
``config`` and below.
"""
