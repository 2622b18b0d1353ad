"""Entry point of ``python -m streaming_jsmf`` and ``streaming-jsmf``.

Heavy imports are deferred until signal handlers are installed, since they take seconds, in which Ctrl-C may arrive.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings

from streaming_jsmf.cli import interrupts
from streaming_jsmf.process_limits import reserve_less, shortage

INVALID = 2

#: New objects between searches for reference cycles. Imports create some 300,000 objects that stay, and searching after
#: 700, the default, takes a tenth of the start. What a command leaves in cycles holds no arrays.
NEW_OBJECTS = 100_000


def main() -> None:
    _open_closed_streams()
    interrupts.end_at_once()
    gc.set_threshold(NEW_OBJECTS)
    _require_address_space()
    from streaming_jsmf.cli.main import report_outcome, run

    # If no thread can be started, Zarr leaves a coroutine unawaited and joins the thread at interpreter exit.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    # An interrupt while processes start may leave a semaphore. multiprocessing removes it in a process that takes these
    # options, and would report it below the last line of the command.
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        interrupts.end_in_order()
        code = run()
        if code:
            sys.unraisablehook = lambda _: None
        interrupts.end(code)
    except KeyboardInterrupt as late:  # a signal arrived while the command reported its outcome
        interrupts.end(report_outcome(late))


def _open_closed_streams() -> None:
    """Redirect closed standard streams to the null device; otherwise the next opened file would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _require_address_space() -> None:
    """Exit with a one-line error if the process limits are too low for the libraries, which would abort."""
    reserve_less()
    short = shortage()
    if short is not None:
        sys.stderr.write(
            f"error: the command needs {short}; raise the limit and run the same command again\n"
        )
        sys.exit(INVALID)


if __name__ == "__main__":
    main()
