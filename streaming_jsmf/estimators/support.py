"""What estimators need besides: checked parameters, a seed, a place for temporary files, shares of a block."""

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
    """An ``InputError`` that is the ``ValueError`` which users of scikit-learn look for."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """What the block refuses as ``EstimatorError``."""
    try:
        yield
    except InputError as error:
        raise EstimatorError(str(error)) from error


@dataclass(frozen=True)
class Shares:
    """Topic shares of a block of documents; small enough to travel with a task but for the topics."""

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
                f"the topic shares of {found.unconverged} documents may be farther than {self.tolerance} from the "
                f"best after {self.iterations} steps: raise transform_iterations",
                ConvergenceWarning,
                stacklevel=2,
            )
        return found.shares


def require_counts(estimator: Any, *names: str) -> None:
    """Refuse what scikit-learn lets pass, such as 2.0 or "5", before a store is made of it; None is a default."""
    for name in names:
        value = getattr(estimator, name)
        if value is not None and not (isinstance(value, (int, np.integer)) and value >= 1):
            raise InputError(f"{name} is {value!r}; give a whole number of at least 1")


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """With numbers of NumPy, as a parameter grid has them, as those of Python, which a store keeps."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def seed_of(random_state: Any) -> int:
    """The seed of the scan and the engine: a number as it is, 0 for None, else drawn from the generator."""
    if random_state is None:
        return 0
    try:
        return operator.index(random_state)
    except TypeError:
        return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def temporary_directory(scratch: str | Path | None) -> Iterator[Path]:
    try:
        directory = TemporaryDirectory(prefix="streaming-jsmf-", dir=scratch)
    except OSError as error:
        raise InputError(
            f"scratch is {str(scratch)!r}, where nothing can be written ({error.strerror}); give another directory"
        ) from error
    with directory as name:
        yield Path(name)
