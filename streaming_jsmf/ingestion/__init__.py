"""From a source to a corpus: read once into bags, choose words, write once. Each step commits and can be resumed."""
