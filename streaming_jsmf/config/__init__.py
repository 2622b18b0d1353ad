"""Settings with a fingerprint: what decides the bits of a store, checked where it enters.

A setting belongs here when another value gives another result. How a job runs (scheduler, workers,
memory, progress) is not a setting: it changes no bit.
"""

from streaming_jsmf.config.fields import differences, fingerprint, require_kind
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
from streaming_jsmf.config.scan import CAPPED_LENGTH, DocumentWeights, RangeFinder, ScanSettings

__all__ = [
    "ANCHOR_ROW_SUM",
    "AUTO",
    "CAPPED_LENGTH",
    "LARGEST_ALPHA0",
    "SHARES",
    "Acceleration",
    "AnchorMethod",
    "CorrelationMethod",
    "DocumentWeights",
    "InferSettings",
    "MissingMass",
    "PolishSettings",
    "RangeFinder",
    "Rectifier",
    "Refinement",
    "ScanSettings",
    "SimplexMethod",
    "StodSettings",
    "differences",
    "fingerprint",
    "require_kind",
]
