"""Topics as a table: of text for a terminal, of HTML for a notebook. Words are text that anybody may have written."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from jinja2 import Environment

from streaming_jsmf.display import printable
from streaming_jsmf.reporting.contents import Topic

#: Columns of a terminal that the table fits.
WIDTH = 80

_INDENT = " " * 14

_HTML = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<table>
<caption>{{ caption }}</caption>
<thead><tr><th>topic</th><th>share</th><th>label</th><th>words</th></tr></thead>
<tbody>
{% for topic in topics %}
<tr><th>{{ topic.number }}</th><td>{{ "%.1f"|format(100 * topic.share) }}%</td>\
<td>{{ topic.name }}</td><td style="text-align: left">{{ topic.words|join(", ", attribute="text") }}</td></tr>
{% endfor %}
</tbody>
</table>
""")


def topic_text(topics: Sequence[Topic], *, characteristic: bool = False) -> str:
    """Lay the topics out as text, their label first and the words beneath, no wider than 80 columns."""
    lines = [f"{'topic':>5} {'share':>6}  label, and most probable words"]
    for topic in topics:
        head = f"{topic.number:>5} {topic.share:>6.1%}  "
        lines += _wrapped(topic.name + _remark(topic), head)
        lines += _wrapped(", ".join(word.text for word in topic.words))
        if characteristic:
            lines += _wrapped(
                f"with {topic.anchor or topic.words[0].text}: {', '.join(topic.characteristic)}"
            )
    return "\n".join(map(printable, lines))


def topic_html(topics: Sequence[Topic], caption: str) -> str:
    """The topics as a table of HTML with a line above it; all text is escaped."""
    return _HTML.render(topics=topics, caption=caption)


def _wrapped(text: str, head: str = _INDENT) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=_INDENT, break_on_hyphens=False
    ) or [head.rstrip()]


def _remark(topic: Topic) -> str:
    if topic.duplicate_of is not None:
        return f"  (repeats topic {topic.duplicate_of})"
    return "" if topic.anchor is None or topic.anchor in topic.label else f"  (anchor: {topic.anchor})"
