"""From rectified moments to topics, and from topics to documents. Pure functions of arrays.

Start with ``law``, the low-rank anchor word algorithm; ``anchors`` and ``soft_clique`` select the anchors,
``correlations`` has topic correlations and priors, ``words`` lists of words. ``stod`` is the tensor engine.
``document_topics`` has the topic shares of documents, ``polish`` a step over documents that improves topics; both use
the rounds of ``cvb0``. Imports ``linalg`` and below.
"""
