"""A graph of tasks, made in time that grows with their number: chains of ``dask.delayed`` copy all that came before."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dask._task_spec import Task, TaskRef
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

Key: TypeAlias = tuple[str, int]


class TaskGraph:
    """Tasks that return tokens and may wait for each other.

    Keys are unique, so that two jobs on one scheduler do not take each other's results for their own. On a Dask
    dashboard tasks are grouped by the names of their functions.
    """

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._tasks: dict[Key, Task] = {}

    def add(self, function: Callable[..., str], *arguments: Any, after: Sequence[Key] = ()) -> Key:
        """Add the call ``function(*arguments, *tokens)`` and return its key.

        Parameters
        ----------
        function
            Of a module, so that workers import it.
        arguments
            Small: they travel with the task.
        after
            Tasks that must have ended before; their tokens follow the arguments.
        """
        key = (f"{function.__name__}-{self._token}", len(self._tasks))
        self._tasks[key] = Task(key, function, *arguments, *map(TaskRef, after))
        return key

    def delayed(self, keys: Sequence[Key]) -> Delayed:
        """What ends when all of these tasks have, to be computed with all that they wait for."""
        layer = f"graph-{self._token}"
        end = keys[0] if len(keys) == 1 else self.add(_ended, after=keys)
        return Delayed(end, HighLevelGraph({layer: self._tasks}, {layer: set()}), layer=layer)


def _ended(*tokens: str) -> str:
    """One result to compute: thousands at once would take Dask seconds to put together."""
    return str(len(tokens))
