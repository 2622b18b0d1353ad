"""Texts into words: splitting, n-grams, stems, counts. Whole Arrow arrays at a time."""
