"""Numbers and settings as people read them; the same value gives the same text everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streaming_jsmf.reporting.contents import Fact

_MEBIBYTE = 2**20

#: Numbers of a list that are all told.
LONG = 8


def percent(share: float) -> str:
    """A share of 1 with two digits that count.

    Examples
    --------
    >>> percent(0.1234), percent(0.01234), percent(0.00001234), percent(1.0), percent(0.0)
    ('12%', '1.2%', '0.0012%', '100%', '0%')
    >>> percent(0.0099999), percent(0.004), percent(-0.05)
    ('1.0%', '0.40%', '-5.0%')
    >>> percent(0.0009)
    '0.090%'
    """
    for least, digits in ((0.0995, 0), (0.00995, 1), (0.000995, 2), (0.0000995, 3)):
        if abs(share) >= least:
            return f"{share:.{digits}%}"
    return f"{100 * share:.2g}%"


def exact(value: float) -> str:
    """A number for programs, to six digits."""
    return f"{value:.6g}"


def value_text(value: Any) -> str:
    """A JSON value in a line; None, and a list of nothing, is a hyphen.

    Examples
    --------
    >>> value_text(0.000012345), value_text(True), value_text(None), value_text([["a", "b"]])
    ('1.234e-05', 'yes', '-', '[["a", "b"]]')

    Of what was measured at many steps the last is told.

    >>> value_text([0.5] * 19 + [0.25]), value_text([{"step": 1}, {"step": 2}])
    ('20 values, the last 0.25', '2 values, the last {"step": 2}')
    """
    if value is None or (isinstance(value, list | tuple) and not value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple) and _is_long(value):
        return f"{len(value)} values, the last {value_text(value[-1])}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_long(values: Sequence[Any]) -> bool:
    if isinstance(values[-1], Mapping):
        return len(values) > 1
    return len(values) > LONG and isinstance(values[-1], int | float)


def facts_of(fields: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Names and values as lines, in their order; those of a mapping inside have its name and a dot before theirs."""
    return tuple(_facts(fields, ""))


def _facts(fields: Mapping[str, Any], prefix: str) -> Iterator[Fact]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name}.")
        else:
            yield Fact(f"{prefix}{name}", value_text(value))


def memory_text(size: int) -> str:
    """Bytes as mebibytes.

    Examples
    --------
    >>> memory_text(1_500_000_000)
    '1,431 MiB'
    """
    return f"{size / _MEBIBYTE:,.0f} MiB"
