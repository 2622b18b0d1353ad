"""How many steps polish takes, over which documents: sampled ones first, all of them at the end.

Early steps only have to go the right way, so a sample of a large corpus serves them as well; the last ones see every
document. Single documents are drawn, not row groups: a corpus is often ordered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.polish.step import ROUNDS

#: Steps, and how many of them at the end see all documents.
STEPS, FULL_STEPS = 20, 5

#: Nonzeros that a sampled step sees, about.
SAMPLE_NONZEROS = 2_000_000


@dataclass(frozen=True)
class Step:
    """One step: the share of the documents that it sees, 1 for all, and the rounds of CVB0 in each of them."""

    share: float
    rounds: int


def plan_steps(nonzeros: int, steps: int = STEPS, rounds: int = ROUNDS) -> tuple[Step, ...]:
    """The steps for a corpus of this many nonzeros: the last ``FULL_STEPS`` see everything, those before a sample.

    >>> plan_steps(40_000_000, steps=6)
    (Step(share=0.05, rounds=5), Step(share=1.0, rounds=5), ... five in all)

    Raises
    ------
    ValueError
        If there is no step.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; give 1 or more")
    share = min(1.0, SAMPLE_NONZEROS / max(nonzeros, 1))
    full = min(FULL_STEPS, steps)
    return (Step(share, rounds),) * (steps - full) + (Step(1.0, rounds),) * full


def drawn_documents(label: str, n_documents: int, step: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Which documents of a unit a step sees, (n_documents,); a pure function of its arguments.

    Parameters
    ----------
    label
        Of the unit that the documents are read in, such as its shard's digest and the number of its row group: not its
        place in the corpus, which other shards change.
    n_documents
        In the unit.
    step
        Number of the step, from 0 on: each draws anew.
    share
        Probability of each document.
    seed
        The user's seed.
    """
    digest = hashlib.sha256(f"{seed}:{step}:{label}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))
    drawn: NDArray[np.bool_] = generator.random(n_documents) < share
    return drawn
