"""What readers and formats share: their protocol, files and streams, values, and documents made of records.

``protocol`` defines readers and formats, ``listing`` finds files, only ``streams`` opens and decompresses them, and
``adapter`` makes documents of records.
"""
