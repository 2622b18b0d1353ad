"""Helpers of the estimators: errors, seeds, temporary directories, and the topic shares of a block."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_random_state

from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.document_topics import document_topics


class EstimatorError(InputError, ValueError):
    """An ``InputError`` that is also a ``ValueError``, as scikit-learn's users expect."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Raise an ``InputError`` of the block as ``EstimatorError``."""
    try:
        yield
    except InputError as error:
        raise EstimatorError(str(error)) from error


@dataclass(frozen=True)
class Shares:
    """A function from a block of documents to their topic shares; pickles with the topics only."""

    word_topic: NDArray[np.float64]
    prior: NDArray[np.float64]
    tolerance: float
    iterations: int
    threads: int | None

    def __call__(self, block: csr_array[Any]) -> NDArray[np.float64]:
        found = document_topics(
            block,
            self.word_topic,
            self.prior,
            tolerance=self.tolerance,
            max_iterations=self.iterations,
            threads=self.threads,
        )
        if found.unconverged:
            warnings.warn(
                f"the topic shares of {found.unconverged} documents may differ by more than {self.tolerance} from the "
                f"optimum after {self.iterations} steps; increase transform_iterations",
                ConvergenceWarning,
                stacklevel=2,
            )
        return found.shares


def seed_of(random_state: Any) -> int:
    """The seed of the scan and the engine: an integer as it is, 0 for None, otherwise drawn from the generator."""
    if random_state is None:
        return 0
    try:
        return operator.index(random_state)
    except TypeError:
        return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def temporary_directory(scratch: str | Path | None) -> Iterator[Path]:
    """Yield a temporary directory in ``scratch``; ``InputError`` if it cannot be created."""
    try:
        directory = TemporaryDirectory(prefix="streaming-jsmf-", dir=scratch)
    except OSError as error:
        raise InputError(
            f"scratch is {str(scratch)!r}, which is not writable ({error.strerror}); give another directory"
        ) from error
    with directory as name:
        yield Path(name)
