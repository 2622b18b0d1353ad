"""Metrics of topics as pure functions of arrays; ``evaluate`` applies all of them to a stored model."""
