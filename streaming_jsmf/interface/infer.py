"""``infer``: a model from a moments store, without reading its corpus."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_jsmf.config import ENGINE_SETTINGS, engine_settings_of, takes
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.infer import infer_model, opened_moments
from streaming_jsmf.topics.requirements import EngineSettings

if TYPE_CHECKING:
    from streaming_jsmf.interface.topic_model import TopicModel


@takes(*ENGINE_SETTINGS)
def infer(
    moments: str | Path | StorePath | Moments,
    model: str | Path | StorePath,
    settings: EngineSettings | int,
    *,
    partitions: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> TopicModel:
    """Fit a model from a moments store and write it, unless the same call has done so. No pass over the corpus.

    Uses eigenpairs, rectification and LAW (LR-JSMF, Algorithm 6 without its scan) or, with ``StodSettings``, tensor
    decomposition. ``settings`` may be the number of topics; their fields, and ``engine``, are also keyword arguments.
    ``partitions`` are labels of the partitions to use (``select_partitions``), by default all. ``workers`` is the
    number of threads, by default one per core and never more; it does not affect the result. Returns a ``TopicModel``
    as ``fit``, whose corpus is that of the store if it is still there. Its topics are not polished.

    Raises ``InputError`` if ``model`` was made by another call (without ``overwrite``), or the scan or the corpus does
    not support K topics; ``StoreError`` if the moments store is incomplete or damaged.

    Examples
    --------
    >>> infer("news.moments", "news-50", 50).topics()  # doctest: +SKIP
    """
    if isinstance(settings, int | Integral):
        settings = engine_settings_of(int(settings), None, options)
    else:
        settings = engine_settings_of(0, settings, options)
    opened = opened_moments(moments, partitions)
    infer_model(opened, model, settings, workers=workers, overwrite=overwrite, listener=listener)
    # What draws a report is loaded last.
    from streaming_jsmf.interface.topic_model import TopicModel

    found = TopicModel(model)
    found._corpus = opened.manifest.corpus.path
    return found
