"""Estimators by scikit-learn's rules: the two engines behind ``fit`` and ``transform``."""

from streaming_jsmf.estimators.lr_jsmf import LRJSMF as LRJSMF
from streaming_jsmf.estimators.stod import STOD as STOD
