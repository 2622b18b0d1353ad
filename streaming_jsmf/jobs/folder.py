"""Where a job works until its result is committed, beside the target; unfinished work of other arguments is refused."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from streaming_jsmf.config import differences, fingerprint
from streaming_jsmf.errors import InputError, SettingsMismatchError, StreamingJSMFError
from streaming_jsmf.jobs.checkpoints import Checkpoints
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.records import PARTIALS, RECORDS, NumberedRecords, read_json
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, digest, read_attributes, write_array
from streaming_jsmf.storage.lock import announce_commit, sole_writer, work_place
from streaming_jsmf.storage.paths import (
    StorePath,
    file_hashes,
    is_free,
    node_exists,
    write_json,
)
from streaming_jsmf.storage.replace import put_in_place, remove_store, store_written

logger = logging.getLogger(__name__)

#: In a directory that an earlier release has left.
OLD_LOCK = "lock"


def require_same(place: StorePath, what: str, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to go on with unfinished work of other arguments.

    Raises
    ------
    SettingsMismatchError
        Names what differs, and how to get on.
    """
    if differing := differences(begun, asked):
        raise SettingsMismatchError(
            f"{place} holds an unfinished {what} that differs in {differing}; finish it with its own command, or "
            "remove that directory"
        )


def _taken(place: StorePath) -> InputError:
    return InputError(
        f"{place} is needed to work in and holds something else; move it away or choose another target"
    )


class Commit(Protocol):
    """Puts what was made in the place of the target; the sha256 of some of its files may be known."""

    def __call__(self, made: Path, known: Mapping[Path, str] | None = None) -> None: ...


@dataclass(frozen=True)
class WorkFolder:
    """A local directory in which tasks write, and find what an interrupted run has done.

    It holds ``<what>.json`` with the arguments and the numbered records of tasks under ``records``; all else is its
    user's.

    Parameters
    ----------
    root
        The directory; see ``beside``.
    what
        What is unfinished here, such as an ingest.
    """

    root: Path
    what: str

    @classmethod
    def beside(cls, target: Path, *what: str) -> Self:
        """The directory ``<target>.partial``, where the work for a target is done."""
        return cls(work_place(target), *what)

    @property
    def target(self) -> Path:
        """Where the result will be."""
        return self.root.with_suffix("")

    @property
    def kind(self) -> str:
        """What it is called in its record, and to a user."""
        return f"unfinished {self.what}"

    @property
    def _record(self) -> Path:
        return self.root / f"{self.what}.json"

    def is_there(self) -> bool:
        """Whether the directory is one of this kind."""
        return self._record.exists()

    def records(self, step: str = "") -> NumberedRecords:
        """Where the tasks of a step commit; a job of one step need not name it."""
        return NumberedRecords(self.root, step)

    @property
    def steps_done(self) -> dict[str, int]:
        """Tasks that are committed, by step."""
        found = Counter(path.parent.name for path in (self.root / RECORDS).rglob("[0-9]*.json"))
        return dict(sorted(found.items()))

    def arguments(self) -> dict[str, Any]:
        """The arguments that the work was begun with.

        Raises
        ------
        StoreError
            If they are damaged.
        """
        return dict(read_json(self._record, dict, self.root).get("arguments", {}))

    @contextmanager
    def acquire(self, arguments: Mapping[str, Any], *, replace: bool = False) -> Iterator[Commit | None]:
        """Begin the work, or take over an interrupted one of the same arguments (JSON values), for the block.

        If no task is committed when the block ends, the directory goes.

        Parameters
        ----------
        replace
            Whether a target that is there is to be replaced.

        Yields
        ------
        Commit
            Puts a file or directory in the place of the target, and removes the working directory. None if there is
            nothing to do: a run of the same arguments was killed when the target was in place, and all of it is as it
            was put there, which one pass over its bytes tells. What is not is made again.

        Raises
        ------
        InputError
            If the target is there, another process writes it, or something else is in the place of the work, which
            would be removed in the end.
        SettingsMismatchError
            If tasks of other arguments are committed; names those that differ.
        StoreError
            If the record of the arguments is damaged.
        """
        known = fingerprint(arguments)
        with sole_writer(self.target) as committed:
            there, (of, _, contents) = os.path.lexists(self.target), committed.partition(" ")
            if there and not replace:
                if of != known:
                    raise InputError(f"{self.target} exists; remove it or choose another path")
                if self._is_sound(contents):
                    yield None
                    return
            self._make()
            if self.is_there() and self.steps_done:
                require_same(self.root, self.what, self.arguments(), arguments)
            else:
                self._clear()
                write_json(self._record, {"kind": self.kind, "arguments": arguments})
            try:
                yield partial(self._commit, None if there and replace else known, there)
            finally:
                if not self.steps_done:
                    self.remove()

    def _is_sound(self, contents: str) -> bool:
        if fingerprint(file_hashes(self.target)) == contents:
            logger.info("%s: complete, made by a run that was killed, and all bytes are those", self.target)
            return True
        logger.warning("%s: is not as it was put there, and is made again", self.target)
        return False

    def _commit(
        self, request: str | None, replaced: bool, made: Path, known: Mapping[Path, str] | None = None
    ) -> None:
        """``known`` are hashes of some of the files of ``made``; ``request`` is None if another result is replaced."""
        files = file_hashes(made, known=known or {})
        if os.path.lexists(self.target) and request is not None:
            self._require_own(files, replaced)
        # What is to be replaced must not be taken for the result, until that is in its place.
        announce_commit(
            self.target, f"{request} {fingerprint(files)}" if request else "", work=request is not None
        )
        put_in_place(made, self.target)
        self.remove()

    def _require_own(self, files: Mapping[str, str], replaced: bool) -> None:
        """Refuse to replace what is not of this work."""
        others = sorted(file_hashes(self.target).keys() - files.keys()) if replaced else ["."]
        if others:
            raise InputError(
                f"{self.target / others[0]} is not of the {self.what}; move it away and run the same command again"
            )

    def _make(self) -> None:
        names = {path.name for path in self.root.iterdir()} if self.root.is_dir() else set()
        begun = f".{self._record.name}."  # what a kill leaves of a record being written
        foreign = any(name != OLD_LOCK and not name.startswith(begun) for name in names)
        taken = not self.root.is_dir() and (self.root.exists() or self.root.is_symlink())
        if taken or (foreign and self._record.name not in names):
            raise _taken(self.root)
        self.root.mkdir(parents=True, exist_ok=True)

    def _clear(self) -> None:
        """Remove all but the record, by which it can be told whose the directory is."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != self._record:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the directory, in one step for who looks at it."""
        remove_store(self.root, ignore_errors=True)


@dataclass(frozen=True)
class WorkStore:
    """A Zarr group in which jobs of folds work: arrays that their tasks read, and ledgers. Local or behind a URL.

    Its user holds the lock of the target.

    Parameters
    ----------
    path
        Where it is.
    kind
        In its attributes.
    what
        What is unfinished here, such as a polish.
    arguments
        What decides the bits of the results: JSON values.
    """

    path: StorePath
    kind: str
    what: str
    arguments: Mapping[str, Any]

    @property
    def request(self) -> str:
        """Tells the work from any with other results."""
        return fingerprint(self.arguments)

    @property
    def hint(self) -> str:
        """The end of a message about damage."""
        return f"remove {self.path} and run the same command again"

    @contextmanager
    def at_work(
        self, memory: Callable[[int], int], execution: Execution | None, listener: Listener = silent
    ) -> Iterator[Executor]:
        """A scheduler for the block, once it is known that there is memory enough; ``start`` comes within.

        Nothing is made if the scheduler does not answer, and bad input removes what was done of it.

        Parameters
        ----------
        memory
            Peak bytes by the number of tasks that run at once.
        execution
            None: the default.

        Raises
        ------
        InputError
            If the memory budget is too small, or as ``Execution.executor``.
        """
        execution = execution or Execution()
        execution.require_memory(memory(execution.concurrency), f"the {self.what}", "lower --workers")
        with execution.executor(listener, on_bad_input=self.remove) as executor:
            yield executor

    def start(self, arrays: Mapping[str, NDArray[Any]], *, replace: bool = False) -> dict[str, ArrayDigest]:
        """Make the store, or take over what an interrupted run of the same arguments left; the digests of ``arrays``.

        Parameters
        ----------
        arrays
            Arrays of up to two axes that tasks are to read (``storage.arrays.read_array``).
        replace
            Whether whatever else is in the place is removed rather than refused.

        Raises
        ------
        InputError
            If something else is in the place.
        SettingsMismatchError
            If unfinished work of other arguments is.
        StoreError
            If its attributes are damaged.
        """
        if replace and not self._is_same():
            self.remove()
        if is_free(self.path):
            self._create(arrays)
        elif not replace:
            self.require_same()
        return {name: digest(values) for name, values in arrays.items()}

    def checkpoints(self, stage: str) -> Checkpoints:
        """Where the tasks of a stage commit."""
        return Checkpoints(self.path, stage, self.hint)

    def remove(self) -> None:
        """Remove it, once its results are kept elsewhere."""
        remove_store(self.path, ignore_errors=True)

    def _is_same(self) -> bool:
        if not node_exists(self.path):
            return False
        try:
            stored = read_attributes(self.path)
        except StreamingJSMFError:
            logger.warning("%s: cannot be read and is made again", self.path)
            return False
        return (stored.get("kind"), stored.get("request")) == (self.kind, self.request)

    def require_same(self) -> None:
        """Refuse a place that holds anything but unfinished work of the same arguments; a free one is fine.

        To be called before what removes the work on bad input: that of others is not ours to remove.

        Raises
        ------
        InputError, SettingsMismatchError, StoreError
            As ``start``.
        """
        if is_free(self.path):
            return
        stored = read_attributes(self.path) if node_exists(self.path) else {}
        if stored.get("kind") != self.kind:
            raise _taken(self.path)
        require_same(self.path, self.what, dict(stored["arguments"]), self.arguments)

    def _create(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        with store_written(self.path) as beside:
            for name, values in arrays.items():
                write_array(beside, name, values, [name, "topic"][: values.ndim])
            for group in (PARTIALS, RECORDS):
                create_group(beside / group, {})
            root = {"kind": self.kind, "request": self.request, "arguments": dict(self.arguments)}
            create_group(beside, root)
