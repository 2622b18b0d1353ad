"""Corpus -> moments store."""

from __future__ import annotations

from pathlib import Path

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.scan import scan_corpus
from streaming_jsmf.runtime.events import Listener, silent
from streaming_jsmf.runtime.files import local_path
from streaming_jsmf.runtime.schedulers import Execution


def scan(
    corpus: str | Path,
    moments: str | Path,
    settings: ScanSettings | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Moments:
    """Scan the corpus at a path or URL into the moments store at ``moments``, or finish an interrupted scan.

    ``settings.scans`` passes over the data; none if the store is complete.

    Raises
    ------
    InputError, StoreError
        See ``open_corpus`` and ``scan_corpus``.
    """
    store = local_path(moments, "a moments store")
    scan_corpus(open_corpus(corpus), store, settings or ScanSettings(), execution, listener)
    return open_moments(store)
