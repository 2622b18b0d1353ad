"""How far the numbers that a model hangs on can be trusted, measured when it is inferred. No scan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.select import SelectedMoments
from streaming_jsmf.rectification.result import Rectification, change_of_grams, omitted_mass


def spectral_certificates(moments: Moments, pairs: Eigenpairs, n_topics: int) -> dict[str, Any]:
    """Certificates of the eigenpairs, as JSON values; memory: basis and projection of the store.

    Returns
    -------
    dict
        ``eigenvalue_gap``: (lambda_K - lambda_K+1) / lambda_K; None where there is no further one.
        ``ritz_residual``: the largest of ||C q - theta q|| / theta over the K leading Ritz pairs of the basis of
        the last scan, with C q from that scan, exact. ``range_change``: ||Y Y' - Y1 Y1'||_F / ||Y1 Y1'||_F for the
        eigenpairs Y1 of scan 1 and those used, Y. Both are None without a second scan over the same documents,
        and where the whole C was counted.
    """
    values = pairs.values
    gap = float(1 - values[n_topics] / values[n_topics - 1]) if values.size > n_topics else None
    certificates: dict[str, Any] = {"eigenvalue_gap": gap, "ritz_residual": None, "range_change": None}
    projected = None if isinstance(moments, SelectedMoments) else moments.projected_basis()
    if projected is None:
        return certificates
    basis, product = projected
    first = np.sqrt(np.maximum(moments.store.read("basis_eigenvalues")[:n_topics], 0.0))
    last = np.sqrt(np.maximum(values[:n_topics], 0.0))
    small = basis.T @ product
    ritz, rotation = np.linalg.eigh((small + small.T) / 2)
    ritz, rotation = ritz[::-1][:n_topics], rotation[:, ::-1][:, :n_topics]
    squared, widths = np.zeros(ritz.size), (first.size, last.size)
    old, new, mixed = (np.zeros((widths[i], widths[j])) for i, j in ((0, 0), (1, 1), (1, 0)))
    # Basis and projection are wide enough; what is made of them is made of a few rows at a time.
    for rows in panels(basis.shape[0]):
        residual = product[rows] @ rotation - (basis[rows] @ rotation) * ritz
        squared += np.einsum("ij,ij->j", residual, residual)
        before, after = basis[rows, : first.size] * first, pairs.vectors[rows, : last.size] * last
        old += before.T @ before
        new += after.T @ after
        mixed += after.T @ before
    relative = np.sqrt(squared[ritz > 0]) / ritz[ritz > 0]
    certificates["ritz_residual"] = float(relative.max()) if relative.size else None
    certificates["range_change"] = change_of_grams(new, old, mixed)
    return certificates


def rectification_certificates(rectification: Rectification) -> dict[str, Any]:
    """What the rectification says of itself, and the negative mass that it leaves (see ``omitted_mass``)."""
    return {
        **rectification.report(),
        "omitted_mass": asdict(omitted_mass(rectification.rectified, rectification.checked_words)),
    }
