"""What Python users start from: ``fit``, ``TopicModel``, ``choose_k`` and ``describe``."""
