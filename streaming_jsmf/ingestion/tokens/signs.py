"""Signs of boilerplate and damage, in one compiled pass over the bytes of texts.

Nearly all texts have none, so patterns are only for those that have their sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.hashes import string_buffers
from streaming_jsmf.linalg.compiled import BYTES, between, compiled, eight_bytes, load, lowest_bit

#: Signs: a backslash; a line or 60 characters as of an encoded file; what mail has; "&"; what URLs and addresses have.
ESCAPE, ENCODED, MAIL, REFERENCE, ADDRESS = 1, 2, 4, 8, 16
#: What every text with boilerplate has that is not only tags, and few others. What tags leave has no new ones.
ANY = ESCAPE | ENCODED | MAIL | REFERENCE | ADDRESS
#: "<"; what is of mail only beside another sign; U+FFFD; and a character that UTF-8 may have become in Latin-1.
TAG, LIKE_MAIL, LOST, MISREAD = 32, 64, 128, 256

_RUN = 60
_IN_BASE64 = np.array([chr(i) in "+/" or (i < 128 and chr(i).isalnum()) for i in range(256)])
_IN_HEADER = np.array([chr(i) in "._-" or (i < 128 and chr(i).isalnum()) for i in range(256)])
_WWW, _FROM_LINE, _ARTICLE, _FROM, _VON, _DE, _DA = (
    np.uint64(int.from_bytes(text, "little"))
    for text in (b"www", b"From ", b"In artic", b"From", b"Von", b"De", b"Da")
)
_TWO, _THREE, _FOUR, _FIVE = (np.uint64(256**size - 1) for size in (2, 3, 4, 5))  # masks of bytes
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def signs_of(texts: Any) -> NDArray[np.int64]:
    """Return the signs of each text of an Arrow array of strings without nulls."""
    found, (offsets, data) = np.zeros(len(texts), np.int64), string_buffers(texts)
    if len(data) < BYTES:
        data = np.frombuffer(data.tobytes() + bytes(BYTES), np.uint8)
    _find(offsets, data, found)
    return found


@compiled(nogil=True)
def _find(offsets: Any, data: Any, found: Any) -> None:
    for m in range(len(found)):
        start, stop = offsets[m], offsets[m + 1]
        signs = _of_line(data, start, stop) | _of_header(data, start, stop)
        for i in range(start, stop, BYTES):
            # The last block of the data has bytes of the one before.
            place = i if i + BYTES <= len(data) else len(data) - BYTES
            block, skipped = load(data, place), np.uint64(i - place)
            inside = ~_ZERO if stop - i >= BYTES else (_ONE << np.uint64(stop - i)) - _ONE
            bits = _may_be_signs(block) >> skipped & inside
            while bits:
                signs |= _of_byte(data, start, i + np.int64(lowest_bit(bits)), stop)
                bits &= bits - _ONE
            bits = _in_half(_base64(block) >> skipped & inside)
            while bits and not signs & ENCODED:
                signs |= _of_run(data, start, i + np.int64(lowest_bit(bits)), stop)
                bits &= bits - _ONE
        found[m] = signs


@compiled(nogil=True, internal=True, forceinline=True)
def _may_be_signs(block: Any) -> Any:
    r"""Bits of the bytes of a block that are one of \n & . : < @ \ or the first of characters that may be damage."""
    bits = between(block, 10, 10) | between(block, 38, 38) | between(block, 46, 46) | between(block, 58, 58)
    bits |= between(block, 60, 60) | between(block, 64, 64) | between(block, 92, 92)
    return bits | between(block, 0xC3, 0xC3) | between(block, 0xEF, 0xEF)


@compiled(nogil=True, internal=True, forceinline=True)
def _base64(block: Any) -> Any:
    """Bits of the bytes of a block that are letters, digits, "+" or "/"."""
    bits = between(block, 65, 90) | between(block, 97, 122)
    return bits | between(block, 47, 57) | between(block, 43, 43)


@compiled(nogil=True, internal=True, forceinline=True)
def _in_half(bits: Any) -> Any:
    """The starts of 30 bits: one of the two blocks of a run has so many of its bits."""
    for shift in (1, 2, 4, 8, 14):
        bits &= bits >> np.uint64(shift)
    return bits


@compiled(nogil=True, internal=True)
def _of_byte(data: Any, start: int, i: int, stop: int) -> Any:
    """The sign that the byte ``i`` of a text is or starts, or that starts after this end of a line."""
    byte = data[i]
    if byte == 46:
        return ADDRESS if i >= start + 3 and _head(data, i - 3, i) == _WWW else 0
    if byte == 10:
        return _of_line(data, i + 1, stop)
    if byte == 58:
        if i + 2 < stop and data[i + 1] == data[i + 2] == 47:
            return ADDRESS
        end, sign = i + 1, MAIL
        while end < stop and (data[end] == 32 or data[end] == 9 or data[end] == 13):
            sign = LIKE_MAIL if data[end] == 13 else sign
            end += 1
        return sign if end == stop or data[end] == 10 else 0
    if byte == 0xC3:  # U+00C2 to U+00F4 before U+0080 to U+00BF, or what cp1252 has for the bytes 128 to 159
        return MISREAD if i + 2 < stop and data[i + 2] >= 0xC2 else 0
    if byte == 0xEF:
        return LOST if data[i + 1] == 0xBF and data[i + 2] == 0xBD else 0
    return REFERENCE if byte == 38 else ADDRESS if byte == 64 else ESCAPE if byte == 92 else TAG


@compiled(nogil=True, internal=True)
def _of_line(data: Any, i: int, stop: int) -> Any:
    """The signs at the start of a line: a quote, a sender, or a line of an encoded file."""
    if i == stop:
        return 0
    if data[i] == 77:
        end = i + 1
        while end < stop and end <= i + _RUN and 32 <= data[end] <= 96:
            end += 1
        return ENCODED if end == i + 1 + _RUN else 0
    if data[i] == 73:
        return LIKE_MAIL if _head(data, i, stop) == _ARTICLE else 0
    end = i
    while end < stop and (data[end] == 32 or data[end] == 9):
        end += 1
    if end < stop and (data[end] == 124 or data[end] == 58):
        end += 1
    if end < stop and data[end] == 62:
        return MAIL
    return _of_sender(data, i + 1 if data[i] == 42 else i, stop)


@compiled(nogil=True, internal=True)
def _of_sender(data: Any, i: int, stop: int) -> int:
    if i == stop:
        return 0
    head = _head(data, i, stop)
    if head & _FOUR == _FROM:
        i += 4
    elif head & _THREE == _VON:
        i += 3
    elif head & _TWO == _DE or head & _TWO == _DA:
        i += 2
    else:
        return 0
    if i < stop and (data[i] == 32 or data[i] == 9):
        i += 1
    elif i + 1 < stop and data[i] == 0xC2 and data[i + 1] == 0xA0:
        i += 2
    return MAIL if i < stop and data[i] == 58 else 0


@compiled(nogil=True, internal=True)
def _of_header(data: Any, i: int, stop: int) -> int:
    """The sign of a header of mail at the start of a text; mbox files put a line "From NAME DATE" before it."""
    if i < stop and _head(data, i, stop) & _FIVE == _FROM_LINE:
        while i < stop and data[i] != 10:
            i += 1
        i += 1
    if i >= stop or not _IN_HEADER[data[i]] or data[i] < 65 or data[i] == 95:
        return 0
    while i < stop and _IN_HEADER[data[i]]:
        i += 1
    return MAIL if i < stop and data[i] == 58 else 0


@compiled(nogil=True, internal=True)
def _of_run(data: Any, start: int, i: int, stop: int) -> int:
    """The sign of the run of letters, digits, "+" and "/" that has the byte ``i``."""
    first, end = i, i
    while first > start and i - first < _RUN and _IN_BASE64[data[first - 1]]:
        first -= 1
    while end < stop and end - first < _RUN and _IN_BASE64[data[end]]:
        end += 1
    return ENCODED if end - first >= _RUN else 0


@compiled(nogil=True, internal=True)
def _head(data: Any, i: int, stop: int) -> Any:
    """The next eight bytes of a text as a number, of which those behind its end are 0; ``i`` is below ``stop``."""
    place = i if i + 8 <= len(data) else len(data) - 8
    head = eight_bytes(data, np.uint64(place)) >> np.uint64(8 * (i - place))
    return head if stop - i >= 8 else head & (_ONE << np.uint64(8 * (stop - i))) - _ONE
