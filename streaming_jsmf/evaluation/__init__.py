"""Metrics of topics, as pure functions of arrays; ``evaluate``, which applies all of them to a stored model.

``metrics`` has the table of all metrics, ``inputs`` what they are computed from, and ``verdicts`` the thresholds.
"""
