"""A proxy in front of an S3 server that injects faults: ``python -m tests.lab_proxy HOST PORT SERVER_PORT``.

A line of JSON on standard input sets the faults, and releases what was held; ``null`` changes nothing. It is answered
by the counts of requests by method, of bytes of contents and of faults since the faults were set.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
#: Seconds for which the fault ``delay`` delays a request, and in which a bucket fills.
DELAY, FILLED = 0.2, 0.1
#: Bytes that pass at once.
CHUNK = 1 << 13
ANSWERS = {"500": ("500 Internal Server Error", "InternalError"), "503": ("503 Slow Down", "SlowDown")}


@dataclass(frozen=True)
class Faults:
    """One of ``kind`` for a ``share`` of the requests: 500, 503, reset, truncate, flip (one bit of an object), hold or
    delay.

    ``only`` is a pattern that ``METHOD /path?query from ADDRESS`` must contain. The first ``after`` of such requests
    pass. Contents pass at ``rate`` bytes per second in all (``Bucket``); 0 is no limit.
    """

    kind: str = ""
    share: float = 1.0
    only: str = ""
    after: int = 0
    rate: int = 0


class Bucket:
    """A token bucket: in any ``t`` seconds, at most ``rate * (t + FILLED)`` bytes and one chunk pass."""

    def __init__(self, rate: int) -> None:
        self._rate, self._due = rate, 0.0

    async def admit(self, n_bytes: int) -> None:
        """Wait until so many bytes may pass."""
        if self._rate:
            now = time.monotonic()
            self._due = max(self._due, now - FILLED) + n_bytes / self._rate
            await asyncio.sleep(self._due - now)


class Proxy:
    """One connection for each request, on both sides."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._faults, self._counts, self._random = Faults(), Counter[str](), random.Random(0)
        self._passed, self._released, self._bucket = 0, asyncio.Event(), Bucket(0)

    def ordered(self, line: str) -> str:
        """Set the faults, and return the counts."""
        counted = json.dumps(self._counts)
        if (how := json.loads(line)) is not None:
            self._faults, self._passed = Faults(**how), 0
            self._bucket = Bucket(self._faults.rate)
            self._counts.clear()
            self._released.set()
            self._released = asyncio.Event()
        return counted

    def _strikes(self, request: str) -> str:
        """The fault for a request; only objects are truncated or flipped."""
        faults = self._faults
        reads = request.startswith("GET ") and "?" not in request and request.count("/") > 1
        if (
            not faults.kind
            or (faults.kind in ("truncate", "flip") and not reads)
            or not re.search(faults.only, request)
            or self._random.random() >= faults.share
        ):
            return ""
        self._passed += 1
        if self._passed <= faults.after:
            return ""
        self._counts["faults"] += 1
        return faults.kind

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._one(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").strip().split("\r\n")
        method, target, _ = first.split(" ")
        fields = [field for field in fields if not re.match("(?i)(connection|expect):", field)]
        if b"100-continue" in head:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._body(reader, fields)
        self._counts[method] += 1
        address, _ = writer.get_extra_info("peername")
        fault = self._strikes(f"{method} {target} from {address}")
        if fault == "hold":
            await self._released.wait()
        elif fault == "delay":
            await asyncio.sleep(DELAY)
        for start in range(0, len(body), CHUNK):
            await self._admit(len(body[start : start + CHUNK]))
        if fault in ANSWERS:
            status, code = ANSWERS[fault]
            text = ERROR.format(code=code)
            close = "Connection: close"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{close}\r\n\r\n{text}".encode()
            )
            await writer.drain()
            return
        request = "\r\n".join([first, *fields, "Connection: close", "", ""]).encode("latin-1")
        answer = await self._answer(request + body)
        start = answer.find(b"\r\n\r\n") + 4
        if fault == "flip" and len(answer) > start:
            middle = (start + len(answer)) // 2
            answer = answer[:middle] + bytes([answer[middle] ^ 1]) + answer[middle + 1 :]
        if fault in ("truncate", "reset"):
            answer = answer[: (start + len(answer)) // 2]
        if fault == "reset":
            # Data that is not delivered is dropped, and the peer gets a reset.
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            answer = b""
        for start in range(0, len(answer), CHUNK):
            chunk = answer[start : start + CHUNK]
            await self._admit(len(chunk))
            writer.write(chunk)
            await writer.drain()

    async def _admit(self, n_bytes: int) -> None:
        await self._bucket.admit(n_bytes)
        self._counts["bytes"] += n_bytes

    async def _body(self, reader: asyncio.StreamReader, fields: list[str]) -> bytes:
        sizes = [int(field.split(":")[1]) for field in fields if field.lower().startswith("content-length:")]
        if sizes:
            return await reader.readexactly(sizes[0])
        if not any(re.match("(?i)transfer-encoding: *chunked", field) for field in fields):
            return b""
        body = b""
        while not body.endswith(b"\r\n0\r\n\r\n") and body != b"0\r\n\r\n":
            body += await reader.readuntil(b"\r\n")
        return body

    async def _answer(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def main(host: str, port: int, server_port: int) -> None:
    proxy = Proxy(server_port)
    server = await asyncio.start_server(proxy.serve, host, port)
    async with server:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(proxy.ordered(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
