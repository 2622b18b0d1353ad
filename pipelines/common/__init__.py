"""Shared by the experiments of the papers and by `benchmarks`.

``results`` stores each result in a file, so that an interrupted command can be run again; ``pictures`` draws each
method in the same style everywhere; ``tables`` writes Markdown; ``peers`` fits topic models of other libraries;
``bags`` reads and writes corpora that fit in memory; ``held_out`` splits them.
"""
