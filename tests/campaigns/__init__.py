"""Attacks by the hundred, drawn from a seed: each case ends in time, in bounds, and with a word if all is not well."""
