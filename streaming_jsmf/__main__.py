"""``python -m streaming_jsmf`` and ``streaming-jsmf``: the command line, once the process is ready for it.

Imports nothing heavy at its head: seconds of imports follow, in which somebody may press Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from types import FrameType

from streaming_jsmf.process_limits import reserve_less, shortage

INTERRUPTED = 130
INVALID = 2


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _end)
    _require_address_space()
    from streaming_jsmf.cli.main import run

    if ours:
        signal.signal(signal.SIGINT, _interrupt)
    # Where no thread can be started, Zarr leaves a coroutine behind, and joins the thread when the interpreter ends.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    code = run()
    if code:
        sys.unraisablehook = _say_nothing
    if ours:  # what the command says is said; a late Ctrl-C would only be a traceback of the interpreter's own cleaning
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Standard streams that the caller has closed lead nowhere: the next file opened would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _require_address_space() -> None:
    """End with one line if the limits of the process do not even allow the libraries: they would abort."""
    reserve_less()
    short = shortage()
    if short is not None:
        sys.stderr.write(
            f"error: the command needs {short}; raise the limit and run the same command again\n"
        )
        sys.exit(INVALID)


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun, and a module that is imported may turn an exception into any other."""
    del number, frame
    os.write(2, b"interrupted; run the same command again to go on from what is committed\n")
    os._exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the command, as soon as no module is being imported."""
    inner = frame
    while inner is not None:
        if inner.f_code.co_filename == "<frozen importlib._bootstrap>":
            again = threading.Timer(0.05, signal.raise_signal, (number,))
            again.daemon = True
            again.start()
            return
        inner = inner.f_back
    # What the interrupt leaves half made may fail once more while it is thrown away, which is no news to anybody.
    sys.unraisablehook = _say_nothing
    signal.default_int_handler(number, frame)


def _say_nothing(failed: sys.UnraisableHookArgs) -> None:
    del failed


if __name__ == "__main__":
    main()
