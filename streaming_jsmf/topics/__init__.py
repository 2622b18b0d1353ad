"""Models: infer topics from moments (``infer``), polish them with the documents (``polish``), store and edit them."""
