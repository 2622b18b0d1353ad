"""A model as one page of HTML: from a frozen dataclass of arrays and strings to text. No files, no stores."""
