"""Workspace of a job until its result is committed: a Zarr group next to the target, ``<target>.partial``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError, StreamingJSMFError
from streaming_jsmf.fingerprint import differences, fingerprint
from streaming_jsmf.jobs.checkpoints import FILES, PARTIALS, RECORDS, Checkpoints, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, digest, read_attributes, write_array
from streaming_jsmf.storage.lock import work_place
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    is_free,
    make_directory,
    node_exists,
    sha256_of,
)
from streaming_jsmf.storage.replace import put_files, remove_store, store_written, temporary_folder
from streaming_jsmf.storage.results import RESULT, UNIDENTIFIED, Found, Wanted

logger = logging.getLogger(__name__)

#: Verbs whose unfinished work has another name in messages.
_VERBS = {"simulation": "simulate", "count of documents": "evaluate"}

#: ``publish()`` or ``publish(file_written)`` yields where to write the result of a workspace, as ``store_written`` or
#: ``file_written`` does, and then removes the workspace.
Publish: TypeAlias = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class Workspace:
    """Arrays and files read by tasks, their checkpoints, and the arguments of the work; local or behind a URL.

    ``what`` names the unfinished work, such as polish; ``arguments`` are JSON values that determine the bits of the
    result. ``result`` is the fingerprint of the request of the result, if it is not that of the arguments.
    """

    root: StorePath
    what: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str = ""

    def __post_init__(self) -> None:
        # Workers may run in other directories.
        object.__setattr__(self, "root", self.root.absolute())

    @classmethod
    def beside(cls, target: StorePath, *fields: Any) -> Self:
        """Return the workspace of a target: ``<target>.partial``."""
        return cls(work_place(target), *fields)

    @property
    def target(self) -> StorePath:
        """Path or URL of the result."""
        return self.root.with_name(self.root.name.removesuffix(".partial"))

    @property
    def kind(self) -> str:
        """Kind stored in the attributes and named in messages."""
        return f"unfinished {self.what}"

    @property
    def request(self) -> str:
        """Fingerprint of the arguments."""
        return fingerprint(self.arguments)

    @property
    def hint(self) -> str:
        """Advice appended to messages about damage."""
        return f"remove {self.root} and run the same command again"

    @property
    def steps_done(self) -> dict[str, int]:
        """Number of committed tasks by step."""
        names = (name.partition("-part-") for name in child_names(self.root / RECORDS))
        return dict(sorted(Counter(step for step, found, _ in names if found).items()))

    def exists(self) -> bool:
        """Whether a workspace of this kind exists."""
        return node_exists(self.root) and read_attributes(self.root, hint=self.hint).get("kind") == self.kind

    def checkpoints(self, stage: str = "") -> Checkpoints:
        """Return the checkpoints of a stage; jobs with a single stage need not name it."""
        verb = _VERBS.get(self.what, self.what)
        return Checkpoints(self.root, stage or self.what, self.hint, verb=verb)

    def executor(
        self,
        memory: Callable[[int], int],
        execution: Execution | None,
        listener: Listener = silent,
        sources: Sequence[str] = (),
    ) -> AbstractContextManager[Executor]:
        """Check the memory budget and return a scheduler; an ``InputError`` inside the block removes the workspace.

        ``memory`` maps the number of concurrent tasks to peak bytes; ``sources`` are files that tasks read. Raises
        ``InputError`` if the memory budget is too small, or as ``Execution.executor``.
        """
        execution = execution or Execution()
        execution.require_memory(memory, f"the {self.what}")
        return execution.executor(listener, target=self.root, sources=sources, on_bad_input=self.remove)

    def start(
        self, arrays: Mapping[str, NDArray[Any]] | None = None, *, replace: bool = False
    ) -> dict[str, ArrayDigest]:
        """Create the workspace or continue an interrupted run with the same arguments; return digests of ``arrays``.

        ``arrays`` have up to two axes and are read by tasks (``storage.arrays.read_array``). ``replace`` removes
        anything else at this path instead of raising the errors of ``require_same``.
        """
        arrays = arrays or {}
        try:
            self.require_same()
            if self.arguments.get(UNIDENTIFIED):
                self.remove()  # whether the source has changed since is unknown
        except StreamingJSMFError as error:
            if not replace or (isinstance(error, InputError) and not self.exists()):
                raise
            if isinstance(error, StoreError):
                logger.warning("%s: cannot be read and is made again", self.root)
            self.remove()
        if is_free(self.root):
            self._create(arrays)
        return {name: digest(values) for name, values in arrays.items()}

    def require_same(self) -> None:
        """Require that the path is free or has unfinished work with the same arguments.

        Call this before anything that removes the workspace on bad input. Raises ``InputError`` if the path has
        something else, ``SettingsMismatchError`` if the arguments differ (the message names them), ``StoreError`` if
        attributes are damaged.
        """
        if is_free(self.root):
            return
        stored = read_attributes(self.root, hint=self.hint) if node_exists(self.root) else {}
        if stored.get("kind") != self.kind:
            raise InputError(
                f"{self.root} is reserved for unfinished work and contains something else; move it away or choose "
                "another target"
            )
        if stored.get("request") != self.request:
            differing = differences(stored.get("arguments") or {}, self.arguments)
            raise SettingsMismatchError(
                f"{self.root} holds an {self.kind} of another request: {differing}; finish it with its own command, or "
                "remove that directory"
            )

    def remove(self) -> None:
        """Remove the workspace; readers see this as one step."""
        remove_store(self.root, ignore_errors=True)

    @contextmanager
    def acquire(
        self, wanted: Wanted, arrays: Mapping[str, NDArray[Any]] | None = None, *, resumable: bool = True
    ) -> Iterator[Publish | None]:
        """Lock the target and start the work with ``arrays``; on exit, remove a workspace without committed tasks.

        Yields what writes the result and removes the workspace; None if the result is there. Work that is not
        ``resumable``, because its input cannot be given again, is removed on every error. Raises the errors of
        ``require_same`` and ``Wanted.writing``. If a result may be overwritten, so may unfinished work.
        """
        with wanted.writing() as found:
            if found is Found.MADE:
                yield None
                return
            if self.exists() and not self.steps_done:
                self.remove()
            self.start(arrays, replace=wanted.overwrite)
            try:
                yield partial(self._published, found)
            except BaseException:
                if not resumable:
                    self.remove()
                raise
            finally:
                if not self.steps_done:
                    self.remove()

    @contextmanager
    def _published(self, found: Found, written: Publish = store_written) -> Iterator[StorePath]:
        with written(self.target, overwrite=found is not Found.NOTHING) as place:
            yield place
        self.remove()

    def _create(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        with store_written(self.root) as beside:
            for name, values in arrays.items():
                write_array(beside, name, values, [name, "topic"][: values.ndim])
            for group in (PARTIALS, RECORDS):
                create_group(beside / group, {})
            root = {"kind": self.kind, "request": self.request, "arguments": dict(self.arguments)}
            create_group(beside, {**root, RESULT: self.result or self.request})


class TaskFiles:
    """Files that a task writes to a directory of a workspace, and their hashes for its record.

    They are written locally, and moved or uploaded when a block succeeds. A task may run twice, also at the same time:
    both runs put the same bytes in the same places. Raises ``StoreError`` if the workspace was removed; a worker that
    outlives its job must not create it again.
    """

    def __init__(self, root: StorePath, directory: str) -> None:
        if not node_exists(root):
            raise StoreError(f"{root} was removed while files were written to it")
        self._root, self._directory = root, directory
        self._hashes: dict[str, str] = {}
        self.known: dict[str, str] = {}  # hashes of files by name

    @contextmanager
    def local(self) -> Iterator[Path]:
        """Yield an empty local directory for the files."""
        beside = self._root if isinstance(self._root, Path) else None
        with temporary_folder(beside, ".task-") as folder:
            yield folder
            made = sorted(folder.iterdir())
            hashes = {path.name: self.known.get(path.name) or sha256_of(path) for path in made}
            self._hashes |= {f"{self._directory}/{name}": found for name, found in hashes.items()}
            make_directory(self._root / self._directory)
            if beside is None:
                put_files([(path, self._root / self._directory / path.name) for path in made])
            else:
                for path in made:
                    path.replace(beside / self._directory / path.name)

    @contextmanager
    def written(self, name: str) -> Iterator[Path]:
        """Yield a local path at which to write the file with this name."""
        with self.local() as folder:
            yield folder / name

    def record(self) -> Record:
        """The part of the record that ``Checkpoints`` compares with the files."""
        return {FILES: dict(self._hashes)}
