"""What people have their documents in: one module for each reader, all giving ``SourceBatch``es."""
