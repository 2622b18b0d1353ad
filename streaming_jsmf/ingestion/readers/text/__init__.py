"""Readers of texts, whose words ``tokens`` finds: files of records (``reader``), and files as documents (``folder``).

By suffix ``reader`` chooses ``parquet_texts``, ``json_texts`` or ``csv_texts``, which give ``batches`` of texts.
"""
