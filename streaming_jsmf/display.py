"""Text that is safe to show and store: locations without secrets, and no characters that control a terminal.

URLs may contain a password (``ftp://user:password@host``) or a key (``https://host/file?sig=...``). They are opened
unchanged; messages, stores and reports contain ``location`` instead.
"""

from __future__ import annotations

import re
from typing import Any

#: Schemes without a host, where an ``@`` belongs to a name, such as a container, unless a : precedes it.
_NAMES = frozenset(
    ("abfs", "abfss", "adl", "az", "wasb", "wasbs", "file", "local", "memory", "zip", "tar", "libarchive")
)
_WEB = frozenset(("http", "https"))

# A password may contain blanks and quotes; elsewhere they end a URL within a text.
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://((?:[^/\s@]*:[^/@\n]*@)?[^\s'\"<>`]*)", re.IGNORECASE)
_USER = re.compile(r"[^/?#]*@")
# A ? is a wildcard, except on the web or before a key and its value.
_QUERY = re.compile(r"\?[^/?#=:]+=.*")
_WEB_QUERY = re.compile(r"[?#].*")
_STOPS = ".,;:)]"

# Controls (C0 and C1), line separators, bidirectional marks and overrides, invisible tags, and lone surrogates, which
# represent bytes that are not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


def location(path: Any) -> str:
    """Return a path or URL, or a text with URLs, without user, password and query.

    >>> location("ftp://user:secret@host/corpus")
    'ftp://host/corpus'
    >>> location("zip://a.csv::https://host/b.zip?sig=secret")
    'zip://a.csv::https://host/b.zip'
    """
    return _URL.sub(_without_secrets, str(path))


def _without_secrets(match: re.Match[str]) -> str:
    scheme, whole = match[1].lower(), match[2]
    link = whole.rstrip(_STOPS)
    stops = whole[len(link) :]
    if (user := _USER.match(link)) and not _is_name(scheme, user.group()):
        link = link[user.end() :]
    link, chained, outer = link.partition("::")
    link = (_WEB_QUERY if scheme in _WEB else _QUERY).sub("", link)
    return f"{match[1]}://{link}{chained}{location(outer)}{stops}"


def _is_name(scheme: str, user: str) -> bool:
    return scheme == "github" or (scheme in _NAMES and ":" not in user)


def printable(text: str, keep: str = "") -> str:
    """Escape control and bidirectional characters as in JSON, except those in ``keep``, such as line ends.

    >>> printable("red\\x1b[31m")
    'red\\\\u001b[31m'
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else spelled(found[0]), text)


def spelled(text: str) -> str:
    r"""Return each UTF-16 code unit as ``\uXXXX``."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
