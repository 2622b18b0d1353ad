"""Out-of-core spectral topic inference: from Parquet shards to provable topics in one or two scans.

Names are imported on first use, because Dask loads a part of this package in every process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "EvaluationRequest": "streaming_jsmf.config",
    "Execution": "streaming_jsmf.jobs.execution",
    "InferSettings": "streaming_jsmf.config",
    "IngestRequest": "streaming_jsmf.config",
    "InputError": "streaming_jsmf.errors",
    "LRJSMF": "streaming_jsmf.estimators",
    "STOD": "streaming_jsmf.estimators",
    "PolishSettings": "streaming_jsmf.config",
    "ScanSettings": "streaming_jsmf.config",
    "StodSettings": "streaming_jsmf.config",
    "StoreError": "streaming_jsmf.errors",
    "StreamingJSMFError": "streaming_jsmf.errors",
    "TopicModel": "streaming_jsmf.reporting.topic_model",
    "choose_k": "streaming_jsmf.reporting.choose_k",
    "corpus_from_gensim": "streaming_jsmf.documents.interop",
    "corpus_from_matrix": "streaming_jsmf.documents.interop",
    "corpus_to_matrix": "streaming_jsmf.documents.interop",
    "documents_of_topic": "streaming_jsmf.documents.queries",
    "evaluate": "streaming_jsmf.evaluation.evaluate",
    "fit": "streaming_jsmf.reporting.topic_model",
    "infer": "streaming_jsmf.topics.infer",
    "ingest": "streaming_jsmf.ingestion.ingest",
    "model_to_gensim": "streaming_jsmf.documents.interop",
    "model_to_pyldavis": "streaming_jsmf.documents.interop",
    "open_corpus": "streaming_jsmf.corpus",
    "open_model": "streaming_jsmf.topics.store",
    "open_moments": "streaming_jsmf.moments.reader",
    "over_time": "streaming_jsmf.documents.over_time",
    "plot_correlations": "streaming_jsmf.reporting.plots",
    "plot_map": "streaming_jsmf.reporting.plots",
    "plot_over_time": "streaming_jsmf.reporting.plots",
    "plot_topics": "streaming_jsmf.reporting.plots",
    "polish": "streaming_jsmf.topics.polish",
    "report": "streaming_jsmf.reporting.report",
    "scan": "streaming_jsmf.moments.scan",
    "show": "streaming_jsmf.reporting.report",
    "shares_by": "streaming_jsmf.documents.queries",
    "least_explained_documents": "streaming_jsmf.documents.queries",
    "similar_documents": "streaming_jsmf.documents.queries",
    "to_dask_array": "streaming_jsmf.corpus.csr",
    "transform": "streaming_jsmf.documents.transform",
    "view": "streaming_jsmf.reporting.report",
}

__all__ = ["__version__", *sorted(_EXPORTS)]

if TYPE_CHECKING:
    from streaming_jsmf.config import EvaluationRequest as EvaluationRequest
    from streaming_jsmf.config import InferSettings as InferSettings
    from streaming_jsmf.config import IngestRequest as IngestRequest
    from streaming_jsmf.config import PolishSettings as PolishSettings
    from streaming_jsmf.config import ScanSettings as ScanSettings
    from streaming_jsmf.config import StodSettings as StodSettings
    from streaming_jsmf.corpus import open_corpus as open_corpus
    from streaming_jsmf.corpus.csr import to_dask_array as to_dask_array
    from streaming_jsmf.documents.interop import corpus_from_gensim as corpus_from_gensim
    from streaming_jsmf.documents.interop import corpus_from_matrix as corpus_from_matrix
    from streaming_jsmf.documents.interop import corpus_to_matrix as corpus_to_matrix
    from streaming_jsmf.documents.interop import model_to_gensim as model_to_gensim
    from streaming_jsmf.documents.interop import model_to_pyldavis as model_to_pyldavis
    from streaming_jsmf.documents.over_time import over_time as over_time
    from streaming_jsmf.documents.queries import documents_of_topic as documents_of_topic
    from streaming_jsmf.documents.queries import least_explained_documents as least_explained_documents
    from streaming_jsmf.documents.queries import shares_by as shares_by
    from streaming_jsmf.documents.queries import similar_documents as similar_documents
    from streaming_jsmf.documents.transform import transform as transform
    from streaming_jsmf.errors import InputError as InputError
    from streaming_jsmf.errors import StoreError as StoreError
    from streaming_jsmf.errors import StreamingJSMFError as StreamingJSMFError
    from streaming_jsmf.estimators import LRJSMF as LRJSMF
    from streaming_jsmf.estimators import STOD as STOD
    from streaming_jsmf.evaluation.evaluate import evaluate as evaluate
    from streaming_jsmf.ingestion.ingest import ingest as ingest
    from streaming_jsmf.jobs.execution import Execution as Execution
    from streaming_jsmf.moments.reader import open_moments as open_moments
    from streaming_jsmf.moments.scan import scan as scan
    from streaming_jsmf.reporting.choose_k import choose_k as choose_k
    from streaming_jsmf.reporting.plots import plot_correlations as plot_correlations
    from streaming_jsmf.reporting.plots import plot_map as plot_map
    from streaming_jsmf.reporting.plots import plot_over_time as plot_over_time
    from streaming_jsmf.reporting.plots import plot_topics as plot_topics
    from streaming_jsmf.reporting.report import report as report
    from streaming_jsmf.reporting.report import show as show
    from streaming_jsmf.reporting.report import view as view
    from streaming_jsmf.reporting.topic_model import TopicModel as TopicModel
    from streaming_jsmf.reporting.topic_model import fit as fit
    from streaming_jsmf.topics.infer import infer as infer
    from streaming_jsmf.topics.polish import polish as polish
    from streaming_jsmf.topics.store import open_model as open_model


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
