"""``python -m streaming_jsmf`` and ``streaming-jsmf``: the command line, once the process is ready for it.

Imports nothing heavy at its head: seconds of imports follow, in which somebody may press Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    from streaming_jsmf.cli.main import run

    sys.exit(run())


def _open_closed_streams() -> None:
    """Standard streams that the caller has closed lead nowhere: the next file opened would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End at once while a module is imported, which may turn the exception into any other; else raise it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, b"interrupted; run the same command again to go on from what is committed\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    main()
