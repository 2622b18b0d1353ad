"""From rectified moments to topics, and from topics to documents. Pure functions of arrays.

Start with ``law``, the low-rank anchor word algorithm; ``anchors`` and ``soft_clique`` choose the anchors,
``correlations`` and ``prior`` tell what goes with the topics, ``words`` lists them. ``stod`` is the tensor engine.
``document_topics`` has the shares of documents, and ``polish`` a step over them that makes better topics; both stand
on the rounds of ``cvb0``. Imports ``linalg`` and below.
"""
