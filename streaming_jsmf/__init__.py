"""Out-of-core spectral topic inference: from Parquet shards to provable topics in one or two scans.

Names are imported on first use, because Dask loads a part of this package in every process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public names by the module that defines them.
_NAMES = {
    "config": "EvaluationRequest InferSettings IngestRequest PolishSettings ScanSettings StodSettings",
    "corpus": "open_corpus",
    "corpus.csr": "to_dask_array",
    "documents.interop": "corpus_from_gensim corpus_from_matrix corpus_to_matrix model_to_gensim model_to_pyldavis",
    "documents.over_time": "over_time",
    "documents.queries": "documents_of_topic least_explained_documents shares_by similar_documents",
    "documents.transform": "transform",
    "errors": "InputError StoreError StreamingJSMFError",
    "estimators": "LRJSMF STOD",
    "evaluation.evaluate": "evaluate",
    "ingestion.ingest": "ingest",
    "interface.choose_k": "choose_k",
    "interface.fit": "fit",
    "interface.topic_model": "TopicModel",
    "interface.update": "update",
    "jobs.execution": "Execution",
    "moments.store": "open_moments",
    "moments.scan": "scan",
    "reporting.plots": "plot_correlations plot_map plot_over_time plot_topics",
    "reporting.report": "report show view",
    "topics.infer": "infer",
    "topics.polish": "polish",
    "topics.store": "open_model",
}
_EXPORTS = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
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
    from streaming_jsmf.interface.choose_k import choose_k as choose_k
    from streaming_jsmf.interface.fit import fit as fit
    from streaming_jsmf.interface.topic_model import TopicModel as TopicModel
    from streaming_jsmf.interface.update import update as update
    from streaming_jsmf.jobs.execution import Execution as Execution
    from streaming_jsmf.moments.scan import scan as scan
    from streaming_jsmf.moments.store import open_moments as open_moments
    from streaming_jsmf.reporting.plots import plot_correlations as plot_correlations
    from streaming_jsmf.reporting.plots import plot_map as plot_map
    from streaming_jsmf.reporting.plots import plot_over_time as plot_over_time
    from streaming_jsmf.reporting.plots import plot_topics as plot_topics
    from streaming_jsmf.reporting.report import report as report
    from streaming_jsmf.reporting.report import show as show
    from streaming_jsmf.reporting.report import view as view
    from streaming_jsmf.topics.infer import infer as infer
    from streaming_jsmf.topics.polish import polish as polish
    from streaming_jsmf.topics.store import open_model as open_model


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
