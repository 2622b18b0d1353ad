"""Shared by the scripts that repeat the experiments of the papers, and by `benchmarks`.

``results`` keeps what was worked out, a file a cell, so that the same command goes on after an interruption;
``pictures`` has one colour and one marker for one method everywhere; ``tables`` writes Markdown; ``peers`` trains the
topic models of other libraries; ``bags`` reads a corpus that fits in memory, and writes one; ``held_out`` splits it.
"""
