"""Estimators that follow scikit-learn's conventions: LR-JSMF and STOD, with ``fit`` and ``transform``."""

from streaming_jsmf.estimators.engines import LRJSMF as LRJSMF
from streaming_jsmf.estimators.engines import STOD as STOD
