"""Out-of-core spectral topic inference: from Parquet shards to provable topics in one or two scans.

Names are imported on first use, because Dask loads a part of this package in every process. Type checkers and editors
read ``__init__.pyi``, which is generated from the declarations of the functions and settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

#: Public names by the module that defines them.
_NAMES = {
    "config": "EvaluationRequest InferSettings IngestRequest PolishSettings ScanSettings StodSettings",
    "corpus": "open_corpus",
    "corpus.units": "to_dask_array",
    "documents.interop": "corpus_from_gensim corpus_from_matrix corpus_to_matrix model_to_gensim model_to_pyldavis",
    "documents.effects": "Effects effects",
    "documents.over_time": "over_time",
    "documents.queries": "documents_of_topic least_explained_documents shares_by similar_documents",
    "documents.transform": "transform",
    "errors": "InputError StoreError StreamingJSMFError",
    "estimators": "LRJSMF STOD",
    "evaluation.evaluate": "evaluate",
    "ingestion.ingest": "ingest",
    "interface.choose_k": "choose_k",
    "interface.fit": "fit",
    "interface.infer": "infer",
    "interface.plan": "plan",
    "interface.topic_model": "TopicModel",
    "interface.update": "update",
    "jobs.execution": "Execution",
    "moments.store": "open_moments",
    "moments.scan": "scan",
    "reporting.document_map": "document_map",
    "reporting.effects": "plot_effects",
    "reporting.plots": "plot_correlations plot_documents plot_map plot_over_time plot_quality plot_topics",
    "reporting.report": "report show view",
    "topics.polish": "polish",
    "topics.store": "open_model",
}
_EXPORTS = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
