"""One BLAS thread inside tasks: more of them change the bits of a Gram matrix and oversubscribe the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_inside = 0
_limits: threadpool_limits | None = None


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any thread of this process is inside; restored by the last to leave.

    A plain ``threadpool_limits`` in each of several concurrent tasks would be lifted for all of them
    by the first that ends, because the limit belongs to the process.
    """
    global _inside, _limits
    with _lock:
        _inside += 1
        if _inside == 1:
            _limits = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
