"""H as a Dask array of csr_array blocks, for people who want it; our own scan iterates."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask import array as da
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Task
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.storage.paths import AnyPath


def to_dask_array(corpus: AnyPath | Corpus) -> Any:
    """Return H (documents x words) of a corpus as a Dask array with one ``csr_array`` block for each row group.

    Nothing is read yet. Use ``map_blocks`` with ``meta=`` on it: array operators such as ``@`` and ``.sum``
    are not defined for sparse blocks in Dask, and some fail silently.
    """
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    units = list_units(corpus)
    name = f"corpus-{tokenize(corpus.fingerprint, corpus.root)}"
    layer = {
        (name, i, 0): Task((name, i, 0), read_block, unit, corpus.n_words) for i, unit in enumerate(units)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, layer),
        name,
        chunks=(tuple(unit.rows for unit in units), (corpus.n_words,)),
        meta=csr_array((0, 0), dtype=np.int32),
        dtype=np.int32,
    )
