"""Passes over the documents of a corpus with a model in hand, and what is asked of the shares that they leave.

``topics`` is what such a pass needs of a model. ``polish`` finishes topics by a few steps over the documents
(``polish_steps``: what its tasks compute). ``completion`` tells how well topics predict documents. ``transform``
writes the topic shares of every document; ``shares`` and ``shares_zarr`` know these files, and ``queries`` answers
from them. Imports ``evaluation`` and below; knows no model store, and nothing of who asked.
"""
