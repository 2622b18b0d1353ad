"""The batches of ``partial_fit``: each is a corpus on disk that is added to a moments store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.storage.paths import StorePath, is_free, local_path, normalise
from streaming_jsmf.storage.replace import remove_store


@dataclass(frozen=True)
class KeptRows:
    """Batch corpora in ``folder``, the first one at ``first`` (empty before it is written), and their moments store."""

    folder: Path
    moments: StorePath
    first: str = ""
    batches: int = 0
    n_documents: int = 0

    @contextmanager
    def place_of_next(self) -> Iterator[Path]:
        """Yield the path of the next corpus, which is removed if the block fails.

        Raises InputError if earlier batches are missing or an earlier call was interrupted.
        """
        if self.first and not self.folder.is_dir():
            raise InputError(
                f"{self.folder}: the rows of earlier batches are missing; start again with a new estimator, and with "
                "store= to keep them"
            )
        path = self.folder / f"batch-{self.batches:05d}"
        if path.exists():
            raise InputError(
                f"{self.folder}: an earlier partial_fit was interrupted; start again with a new estimator"
            )
        try:
            yield path
        except StreamingJSMFError:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def added(self, corpus: Corpus, settings: ScanSettings, execution: Execution) -> tuple[KeptRows, Moments]:
        """Add a batch to the store. Raises the errors of ``scan``, which leave the store unchanged."""
        if self.first:
            # An existing store already has its third moment, if any.
            own, changes = replace(settings, third_moment=False), Changes(add=(corpus.root,))
            moments = scan(self.first, self.moments, own, execution, changes=changes)
        else:
            moments = scan(corpus, self.moments, settings, execution)
        found = replace(
            self,
            first=self.first or corpus.root,
            batches=self.batches + 1,
            n_documents=self.n_documents + corpus.n_documents,
        )
        return found, moments


def begin_rows(stack: ExitStack, store: str | Path | None, scratch: str | Path | None) -> KeptRows:
    """Start without batches; ``stack`` removes what is created. Raises InputError if ``store`` or its rows exist."""
    if store is None:
        folder = stack.enter_context(temporary_directory(scratch))
        return KeptRows(folder, folder / "moments")
    moments = local_path(normalise(store), "a moments store that rows are kept beside")
    folder = moments.with_name(f"{moments.name}.rows")
    taken = next((place for place in (moments, folder) if not is_free(place)), None)
    if taken is not None:
        raise InputError(
            f"{taken}: exists already; partial_fit starts with a new store, so give another path"
        )
    folder.mkdir(parents=True)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(remove_store, moments, ignore_errors=True)
    return KeptRows(folder, moments)


@contextmanager
def temporary_directory(scratch: str | Path | None) -> Iterator[Path]:
    """Yield a temporary directory in ``scratch``; ``InputError`` if it cannot be created."""
    try:
        directory = TemporaryDirectory(prefix="streaming-jsmf-", dir=scratch)
    except OSError as error:
        raise InputError(
            f"scratch is {str(scratch)!r}, which is not writable ({error.strerror}); give another directory"
        ) from error
    with directory as name:
        yield Path(name)
