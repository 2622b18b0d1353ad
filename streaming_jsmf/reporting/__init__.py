"""Reports: a model as one page of HTML."""
