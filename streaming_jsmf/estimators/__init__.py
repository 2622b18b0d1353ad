"""Estimators by scikit-learn's rules: the two engines with ``fit`` and ``transform``."""

from streaming_jsmf.estimators.engines import LRJSMF as LRJSMF
from streaming_jsmf.estimators.engines import STOD as STOD
