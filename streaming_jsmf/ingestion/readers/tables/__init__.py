"""Readers of tables. In ``baskets`` a row is a document; rows of ``triples`` and ``ratings`` are one count each, in any
order, and come together by ``shuffle``. ``rows`` gives named columns of Parquet and delimited text.
"""
