"""What became of a source on the way to a corpus, as a table to print."""

from __future__ import annotations

from streaming_jsmf.corpus.manifest import Manifest, Number

_WIDTH = 11


def losses_table(manifest: Manifest) -> str:
    """Lines of what was read, what each step took away and why, and what is left: documents, words and tokens.

    Steps that took nothing are left out. Of tokens only those are counted at a step that the ones before left.
    """
    read, kept = manifest.settings, manifest.totals
    words = kept.words + sum(step.words for step in manifest.dropped)
    rows: list[tuple[str, Number, Number, Number]] = [
        ("read", _number(read.get("documents_read")), words, _number(read.get("tokens_read"))),
        *(
            (f"- {s.reason}", s.documents, s.words, s.tokens)
            for s in manifest.dropped
            if s.documents or s.words
        ),
        ("kept", kept.documents, kept.words, kept.tokens),
    ]
    label = max(len(row[0]) for row in rows)
    head = " " * label + "".join(f"{name:>{_WIDTH}}" for name in ("documents", "words", "tokens"))
    return "\n".join([head, *(f"{row[0]:<{label}}" + "".join(map(_cell, row[1:])) for row in rows)])


def _number(value: object) -> Number:
    return value if isinstance(value, int | float) else 0


def _cell(value: Number) -> str:
    return f"{value:>{_WIDTH},.0f}" if value else " " * _WIDTH
