"""The documents of ``partial_fit``: every batch is a corpus on the disk, and one more that a moments store grows by."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.estimators.support import temporary_directory
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.storage.paths import StorePath, is_free, local_path, normalise
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.workflow.scan import Changes, scan


@dataclass(frozen=True)
class KeptRows:
    """Where batches of documents and their moments are, and how many have come.

    Attributes
    ----------
    folder, moments
        The corpora of matrices are below the one; the store is the other.
    first
        Root of the first corpus; empty before it.
    batches, n_documents
        That the store is made of.
    """

    folder: Path
    moments: StorePath
    first: str = ""
    batches: int = 0
    n_documents: int = 0

    @property
    def _next(self) -> Path:
        return self.folder / f"batch-{self.batches:05d}"

    @contextmanager
    def place_of_next(self) -> Iterator[Path]:
        """Where the corpus of the next batch goes; nothing of it is left if the block refuses the batch.

        Raises
        ------
        InputError
            If the rows before are gone, or an interrupted call has left the store between two states.
        """
        if self.first and not self.folder.is_dir():
            raise InputError(
                f"{self.folder}: the rows of the batches before are gone; begin again with a new estimator, and "
                "store= to keep them"
            )
        if self._next.exists():
            raise InputError(
                f"{self.folder}: a call of partial_fit was interrupted; begin again with a new estimator"
            )
        try:
            yield self._next
        except StreamingJSMFError:
            shutil.rmtree(self._next, ignore_errors=True)
            raise

    def added(self, corpus: Corpus, settings: ScanSettings, execution: Execution) -> tuple[KeptRows, Moments]:
        """With one more batch in the store; errors as ``scan``, after which the store is as it was."""
        if self.first:
            # A third moment is of the store already.
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
    """No rows yet; ``stack`` gets what removes the place of them.

    Raises
    ------
    InputError
        If something is at ``store`` or beside it where the rows go.
    """
    if store is None:
        folder = stack.enter_context(temporary_directory(scratch))
        return KeptRows(folder, folder / "moments")
    moments = local_path(normalise(store), "a moments store that rows are kept beside")
    folder = moments.with_name(f"{moments.name}.rows")
    taken = next((place for place in (moments, folder) if not is_free(place)), None)
    if taken is not None:
        raise InputError(
            f"{taken}: is there already; partial_fit begins with a new store, so give another path"
        )
    folder.mkdir(parents=True)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(remove_store, moments, ignore_errors=True)
    return KeptRows(folder, moments)
