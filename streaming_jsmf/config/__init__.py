"""Settings of every verb, each declared once.

What changes the result of a scan, an inference or a polish enters the fingerprint of its store. How a job runs
(``ExecutionOptions``) does not change the result.
"""

from streaming_jsmf.config.evaluation import EvaluationRequest
from streaming_jsmf.config.execution import ExecutionOptions, parse_memory
from streaming_jsmf.config.fields import Settings, declared
from streaming_jsmf.config.fingerprint import differences, fingerprint
from streaming_jsmf.config.inference import (
    ANCHOR_ROW_SUM,
    AUTO,
    LARGEST_ALPHA0,
    SHARES,
    Acceleration,
    AnchorMethod,
    CorrelationMethod,
    InferSettings,
    MissingMass,
    PolishSettings,
    Rectifier,
    Refinement,
    SimplexMethod,
    StodSettings,
)
from streaming_jsmf.config.ingest import (
    ALL_DOCUMENTS,
    Curation,
    IngestRequest,
    OnBadRecord,
    Preset,
    ReaderName,
    TextReading,
    request_of,
)
from streaming_jsmf.config.keywords import engine_settings_of, fields_given, require_kind, settings_of, takes
from streaming_jsmf.config.scan import CAPPED_LENGTH, DocumentWeights, RangeFinder, ScanSettings

__all__ = [
    "ALL_DOCUMENTS",
    "ANCHOR_ROW_SUM",
    "AUTO",
    "CAPPED_LENGTH",
    "LARGEST_ALPHA0",
    "SHARES",
    "Acceleration",
    "AnchorMethod",
    "CorrelationMethod",
    "Curation",
    "DocumentWeights",
    "EvaluationRequest",
    "ExecutionOptions",
    "InferSettings",
    "IngestRequest",
    "MissingMass",
    "OnBadRecord",
    "PolishSettings",
    "Preset",
    "RangeFinder",
    "ReaderName",
    "Rectifier",
    "Refinement",
    "ScanSettings",
    "Settings",
    "SimplexMethod",
    "StodSettings",
    "TextReading",
    "declared",
    "differences",
    "engine_settings_of",
    "fields_given",
    "fingerprint",
    "parse_memory",
    "request_of",
    "require_kind",
    "settings_of",
    "takes",
]
