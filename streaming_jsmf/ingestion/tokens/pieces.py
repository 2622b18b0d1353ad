"""Pieces of texts between ASCII separators, each distinct one once, in lower case as far as it is ASCII.

Bits of the bytes in pieces come from blocks of 64 bytes; pieces of up to eight bytes are compared as one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streaming_jsmf.linalg.compiled import BYTES, between, compiled, eight_bytes, load, lowest_bit

#: Lower-case letter or digit by byte; 0 for ASCII separators. Bytes of other characters stay.
_LETTERS = np.array(
    [ord(chr(i).lower()) if chr(i).isalnum() else 0 for i in range(128)] + list(range(128, 256)), np.uint8
)
_FIRST_SLOTS = 1 << 12
#: A piece of up to eight bytes, none of them 0, is its own key; others have a hash before a last byte that none has.
_IN_KEY, _LONG, _PRIME = np.uint64(8), np.uint64(1 << 56), np.uint64(0x9E3779B97F4A7C15)
_ALL, _BITS, _IN_BLOCK, _BLOCK = (np.uint64(number) for number in (2**64 - 1, 64, 63, 6))
#: The highest bit of eight bytes, which no ASCII character has, and how far it is from that of small letters.
_HIGH, _TO_SMALL = np.uint64(0x8080808080808080), np.uint64(2)
#: Indices are unsigned, because numba tests whether signed ones count from the end, which takes a third of the time.
_ZERO, _ONE, _BYTE, _HALF = (np.uint64(number) for number in (0, 1, 8, 32))


def find_pieces(offsets: Any, data: Any) -> Any:
    """Split texts at ASCII separators; return indptr, codes, and int32 offsets and bytes of the distinct pieces."""
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    total, in_pieces = len(data), np.empty(len(data) // BYTES + 1, np.uint64)
    _mark(data, in_pieces)
    if total < _IN_KEY:
        data = np.frombuffer(data.tobytes() + bytes(8), np.uint8)
    indptr, codes = np.zeros(len(offsets), np.int64), np.empty(total // 2 + len(offsets), np.int32)
    letters, ends = np.empty(total + 8, np.uint8), np.zeros(1, np.int32)
    keys, at = np.empty(0, np.uint64), np.zeros(4, np.int64)
    while at[0] < len(indptr) - 1:
        # A table that is at most half full. A larger one follows when it is.
        size = max(_FIRST_SLOTS, 4 * len(keys))
        keys, ends = np.resize(keys, size // 2), np.resize(ends, size // 2 + 1)
        slots = np.full(size, -1, np.int32)
        _place(keys[: at[3]], slots)
        _fill(offsets, data, in_pieces, indptr, codes, letters, ends, keys, slots, at)
    return indptr, codes[: at[2]].copy(), ends[: at[3] + 1], letters[: ends[at[3]]]


@compiled(nogil=True)
def _mark(data: Any, in_pieces: Any) -> None:
    """Set the bits of the bytes that are in pieces: ASCII letters and digits, and all bytes of other characters."""
    for i in range(0, len(data) - BYTES + 1, BYTES):
        block = load(data, i)
        bits = between(block, 48, 57) | between(block, 65, 90) | between(block, 97, 122)
        in_pieces[i // BYTES] = bits | between(block, 128, 255)
    in_pieces[len(in_pieces) - 1] = 0
    for i in range(len(data) // BYTES * BYTES, len(data)):
        in_pieces[i // BYTES] |= np.uint64(_LETTERS[data[i]] > 0) << np.uint64(i % BYTES)


@compiled(nogil=True, internal=True, forceinline=True)
def _slot(key: Any, size: Any) -> Any:
    """The first slot of a key in a table of this size: the highest bits of a product depend on all bits of the key."""
    return key * _PRIME >> (_BITS - lowest_bit(np.uint64(size)))


@compiled(nogil=True)
def _place(keys: Any, slots: Any) -> None:
    """Fill a hash table with linear probing, whose size is a power of two: number of a piece by slot, or -1."""
    mask = np.uint64(len(slots) - 1)
    for code in range(len(keys)):
        slot = _slot(keys[code], len(slots))
        while slots[slot] >= 0:
            slot = (slot + _ONE) & mask
        slots[slot] = code


# fmt: off
@compiled(nogil=True)
def _fill(
    offsets: Any, data: Any, in_pieces: Any, indptr: Any, codes: Any, letters: Any, ends: Any, keys: Any, slots: Any,
    at: Any
) -> None:
    """Continue until ``keys`` is full: ``at`` has document, byte, number of codes, and number of distinct pieces."""
    # fmt: on
    mask = np.uint64(len(slots) - 1)
    m, i, used, known = at[0], np.uint64(at[1]), np.uint64(at[2]), at[3]
    while m < len(offsets) - 1 and known < len(keys):
        stop = np.uint64(offsets[m + 1])
        while i < stop and known < len(keys):
            start = _next(in_pieces, i, stop, _ZERO)
            i = _next(in_pieces, start, stop, _ALL)
            if i > start:
                key = _part(data, start, i) if i - start <= _IN_KEY else _long_key(data, start, i)
                slot = _slot(key, len(slots))
                code = slots[slot]
                # Short pieces are compared here: in a call with arrays, numba would count references to them.
                while code >= 0 and (
                    keys[code] != key or (i - start > _IN_KEY and not _is(code, data, start, i, ends, letters))
                ):
                    slot = (slot + _ONE) & mask
                    code = slots[slot]
                if code < 0:
                    code = slots[slot] = known
                    keys[known], ends[known + 1] = key, ends[known] + _copy(data, start, i, letters, ends[known])
                    known += 1
                codes[used] = code
                used += _ONE
        if i >= stop:
            m += 1
            indptr[m] = used
    at[0], at[1], at[2], at[3] = m, i, used, known


@compiled(nogil=True, internal=True, forceinline=True)
def _next(in_pieces: Any, i: Any, stop: Any, flips: Any) -> Any:
    """The next byte before ``stop`` that is in a piece, or with all bits as ``flips`` in none, else ``stop``."""
    while i < stop:
        bits = (in_pieces[i >> _BLOCK] ^ flips) >> (i & _IN_BLOCK)
        if bits:
            i += lowest_bit(bits)
            return i if i < stop else stop
        i = (i | _IN_BLOCK) + _ONE
    return stop


@compiled(nogil=True, internal=True, forceinline=True)
def _part(data: Any, start: Any, end: Any) -> Any:
    """The first one to eight bytes from ``start`` to ``end``, whose ASCII letters become small."""
    last, size = np.uint64(len(data)) - _IN_KEY, end - start
    place = start if start < last else last
    part = eight_bytes(data, place) >> (_BYTE * (start - place))
    part |= (~part & _HIGH) >> _TO_SMALL
    return part & _ALL >> (_BITS - _BYTE * size) if size < _IN_KEY else part


@compiled(nogil=True, internal=True)
def _long_key(data: Any, start: Any, end: Any) -> Any:
    """Hash of a piece that does not fit into a key. Its last byte differs from that of all pieces."""
    key = end - start
    while start < end:
        key = (key ^ _part(data, start, end)) * _PRIME
        key ^= key >> _HALF
        start += _IN_KEY
    return key >> _BYTE | _LONG


@compiled(nogil=True, internal=True)
def _is(code: int, data: Any, start: Any, end: Any, ends: Any, letters: Any) -> Any:
    """Return whether the long piece ``code`` is ``data[start:end]``."""
    first, last = np.uint64(ends[code]), np.uint64(ends[code + 1])
    if last - first != end - start:
        return False
    while first < last:
        if _part(data, start, end) != _part(letters, first, last):
            return False
        start, first = start + _IN_KEY, first + _IN_KEY
    return True


@compiled(nogil=True, internal=True, forceinline=True)
def _copy(data: Any, start: Any, end: Any, letters: Any, first: int) -> Any:
    """Add a piece to ``letters``; return its length."""
    for i in range(start, end):
        letters[np.uint64(first) + i - start] = _LETTERS[data[i]]
    return end - start
