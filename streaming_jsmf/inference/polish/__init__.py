"""Polish: a few deterministic passes over the documents that finish topics found without them."""
