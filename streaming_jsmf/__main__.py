"""``python -m streaming_jsmf`` and ``streaming-jsmf``: the command line, once the process is ready for it.

Imports nothing heavy at its head: seconds of imports follow, in which somebody may press Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings

from streaming_jsmf.cli import interrupts
from streaming_jsmf.process_limits import reserve_less, shortage

INVALID = 2


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    interrupts.end_at_once()
    _require_address_space()
    from streaming_jsmf.cli.main import run, say_how_it_ended

    # Where no thread can be started, Zarr leaves a coroutine behind, and joins the thread when the interpreter ends.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    try:
        interrupts.end_in_order()
        code = run()
        if code:
            sys.unraisablehook = lambda _: None
        interrupts.end(code)
    except KeyboardInterrupt as late:  # a signal arrived while the command reported its outcome
        interrupts.end(say_how_it_ended(late))


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


if __name__ == "__main__":
    main()
