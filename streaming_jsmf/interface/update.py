"""``update``: a model follows its source; topics keep their numbers, labels and edits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from streaming_jsmf.config import (
    FIXED_BY_MODEL,
    INGEST_SETTINGS,
    IngestRequest,
    UpdateSettings,
    Vanished,
    request_of,
    settings_of,
    takes,
)
from streaming_jsmf.corpus.format import Corpus, is_corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.display import location, percent, table
from streaming_jsmf.documents.transform import transform
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.polish import FULL_STEPS
from streaming_jsmf.ingestion.grow import grow_corpus
from streaming_jsmf.ingestion.revision import CHANGES, SINCE
from streaming_jsmf.ingestion.word_choice import NEW_WORDS
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.integrity import is_cleared
from streaming_jsmf.moments.manifest import StoreManifest, words_digest
from streaming_jsmf.moments.scan import relocate, scan
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import (
    StorePath,
    exists,
    join,
    node_exists,
    normalize,
    store_path,
)
from streaming_jsmf.storage.replace import interrupted_in
from streaming_jsmf.topics.edits import EditedTopics, TopicEdits, read_edits
from streaming_jsmf.topics.identity import Succession, started_from
from streaming_jsmf.topics.plan import TopicsPlan
from streaming_jsmf.topics.polish import polish_model
from streaming_jsmf.topics.store import (
    AnyModel,
    Model,
    beside,
    fitted_path,
    model_path,
    models_at,
    read_model,
    wanted_model,
    write_model,
)

logger = logging.getLogger(__name__)

#: Increase when the same update gives other bits.
ALGORITHM_VERSION = 1

#: Share of new words among the known and new ones above which the vocabulary is said to have aged.
AGED = 0.05

#: Distance from what a topic was at first above which its words are to be read again: halves of a topic have .54.
DRIFTED = 0.5

#: Share of the topics that vanished from which the model no longer describes the corpus.
RENEWED = 0.25

#: Number of new words in a table or a warning.
SHOWN_WORDS = 8


@dataclass(frozen=True)
class Update:
    """What the last update of a model changed; printed as a table.

    ``anything`` is whether this call changed anything. ``corpus`` has the numbers of files and documents that were
    added, changed and removed, and the tokens of words that the vocabulary lacks; ``models`` has for each model the
    distances between each topic and its successor, and the topics that are new or have vanished.
    """

    anything: bool
    corpus: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        models = {path: {**topics, "advice": self.advice(path)} for path, topics in self.models.items()}
        return {"changed": self.anything, **self.corpus, "models": models}

    def __str__(self) -> str:
        found = self.corpus
        rows = [
            (what, *(f"{found.get(f'{kind}_{what}', 0):,}" for kind in ("files", "documents")))
            for what in ("added", "changed", "removed")
        ]
        if not (self.anything or self.models):
            return f"nothing to update: {found['documents']:,} documents"
        lines = [] if self.anything else ["nothing to update; the last update:"]
        lines.append(
            table([("", "files", "documents"), *rows, ("corpus", "", f"{found['documents']:,}")], "<>>")
        )
        if found.get("tokens_added"):
            words = ", ".join(found["new_words"][:SHOWN_WORDS])
            shown = f" ({words})" if words else ""
            lines.append(f"words that the vocabulary lacks: {percent(new_share(found))} of the tokens{shown}")
        for path, topics in self.models.items():
            lines += [*_lines_of(path, topics), f"  {self.advice(path)}"]
        return "\n".join(lines)

    def advice(self, path: str) -> str:
        """Whether the topics of the model at this path can be used as before, and what to do if not."""
        topics = self.models[path]
        gone = {change["topic"] for change in topics["changes"]}
        far = [k for k, each in enumerate(topics["distances"]) if each > DRIFTED and k not in gone]
        lacking = new_share(self.corpus)
        again = "fit again into another path, and compare"
        if len(gone) >= RENEWED * len(topics["distances"]):
            new = f"{len(gone)} of {len(topics['distances'])} topics are new"
            return f"the topics cannot be compared with earlier results, as {new}; {again}"
        if lacking > AGED:
            unknown = f"the words of {percent(lacking)} of the tokens added are unknown to them"
            return f"the topics may tell little about new subjects, as {unknown}; {again}"
        if gone or far:
            found = ("new", gone), ("with other words than at first", far)
            told = [f"{what}: {', '.join(map(str, sorted(which)))}" for what, which in found if which]
            advice = "read their words and check their labels before comparing them with earlier results"
            return f"most topics can be used as before, but not all ({'; '.join(told)}); {advice}"
        return "the topics mean what they did, and can be used as before, with their labels"


def new_share(changes: Mapping[str, Any]) -> float:
    """Share of the tokens of added documents whose words the vocabulary lacks, although fit would choose them."""
    new = float(changes["new_tokens"])
    return new / max(new + float(changes["tokens_added"]), 1.0)


def _lines_of(path: str, topics: Mapping[str, Any]) -> list[str]:
    changes = topics["changes"]
    gone = {change["topic"] for change in changes}
    kept = [each for topic, each in enumerate(topics["distances"]) if topic not in gone]
    far = f", at distances up to {max(kept):.2f} from what they were at first" if kept else ""
    lines = [f"{location(path)}: {len(kept)} of {len(topics['distances'])} topics kept{far}"]
    for change in changes:
        related = "split from" if change["event"] == "new" else "merged into"
        verb = related if change["related"] else "nearest to"
        lines.append(
            f"  topic {change['topic']} {change['event']} ({change['name']}), {verb} {change['nearest']} at "
            f"{change['distance']:.2f}"
        )
    return lines


@takes(UpdateSettings, *INGEST_SETTINGS, Execution, without=FIXED_BY_MODEL)
def update(
    model: AnyModel,
    source: Any,
    *,
    settings: UpdateSettings | None = None,
    reading: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    **options: Any,
) -> Update:
    """Let a model of ``fit`` follow its source: add, replace and remove documents, and update the topics.

    Only new and changed files are read, as ``fit`` read them and with the same words; the moments are updated, and the
    topics polished from the present ones, with all documents. Topics keep their numbers, labels and edits: each follows
    that of the new model at the least Hellinger distance. Kept topic shares (``MODEL.shares.parquet``) are computed
    again, because the shares of all documents are those of the new topics. The same call completes an interrupted one,
    and does nothing if nothing has changed. Returns an ``Update``, which prints as a table.

    Raises ``InputError`` if the corpus of the model does not record its files, more than half of its documents would be
    removed with vanished files, or as ``ingest``; ``StoreError`` if the model, its moments or its corpus are damaged.

    Parameters
    ----------
    model
        Path of a model of ``fit``, with ``MODEL.corpus`` and ``MODEL.moments``. Models of several K are updated
        together.
    source
        The source of the model in its present state: files and folders that ``fit`` read are compared with what it
        read. Other files, and data in memory, are added. Or a corpus, if the model was fitted to one, whose shards have
        changed.
    settings
        None: the defaults of ``UpdateSettings``. Its fields, and those of ``Execution``, are also keyword arguments.
    reading
        How files are read, if not as before; its fields are also keyword arguments.

    Examples
    --------
    >>> print(update("news", "articles/*.csv"))  # doctest: +SKIP
    """
    execution = settings_of("execution", Execution, execution, options)
    settings = settings_of("settings", UpdateSettings, settings, options)
    root = fitted_path(model_path(model))
    for place in (root, *(root / name for name in interrupted_in(root, "k="))):
        recover(place)
    paths = models_at(root)
    first = read_model(paths[0], ())
    place = beside(root, "moments")
    if not node_exists(place):
        place = store_path(str(first.provenance.get("moments")), "a moments store")
    corpus = _corpus(
        root, source, first, settings.vanished, request_of(reading, options), execution, listener
    )
    changes = _changes(corpus, read_store(place).manifest)
    store = _followed(corpus, place, execution, listener)
    updater = _Updater(store, corpus, settings.steps, execution, listener)
    updated = {path: updater.update(path) for path in paths}
    for path in paths:
        shares = beside(path, "shares.parquet")
        if exists(shares):
            transform(path, corpus, shares, overwrite=True, execution=execution, listener=listener)
    models = {str(path): topics for path, (_, topics) in updated.items() if topics}
    found = Update(any(changed for changed, _ in updated.values()), changes, models)
    if found.anything and changes["tokens_added"] and new_share(changes) > AGED:
        words = ", ".join(changes["new_words"][:SHOWN_WORDS])
        logger.warning("the vocabulary has aged: it lacks the words of %s of the tokens (%s); fit again to learn them",
                       percent(new_share(changes)), words)  # fmt: skip
    return found


def _corpus(
    root: StorePath,
    source: Any,
    model: Model,
    vanished: Vanished | None,
    reading: IngestRequest | None,
    execution: Execution,
    listener: Listener,
) -> Corpus:
    """The corpus in its present state."""
    if isinstance(source, Corpus) or (isinstance(source, str | PathLike) and is_corpus(source)):
        return open_corpus(source)
    place = beside(root, "corpus")
    if not exists(place):
        if isinstance(source, str | PathLike) and not exists(normalize(source)):
            raise unsuitable(normalize(source), SOURCE, "")
        shown = source if isinstance(source, str | PathLike) else f"the {type(source).__name__}"
        raise InputError(
            f"{root}: its corpus {place} is missing, and {shown} is not a corpus; give the corpus that it was fitted to"
        )
    since = next(iter(model.corpora), "")
    return grow_corpus(source, place, reading, execution, listener, vanished=vanished, since=since)


def _followed(corpus: Corpus, place: StorePath, execution: Execution, listener: Listener) -> Moments:
    """The moments of a corpus in its present state."""
    recover(place)
    store = read_store(place)
    if store.manifest.corpus.fingerprint == corpus.fingerprint and is_cleared(store):
        return store
    same_words = words_digest(corpus.vocabulary().words) == store.manifest.vocabulary
    if same_words and store.manifest.corpus.path != corpus.location:
        relocate(store, corpus)
    return scan(corpus, place, None, execution, listener, follow=True)


def _changes(corpus: Corpus, before: StoreManifest) -> dict[str, Any]:
    """The ``CHANGES`` that a grown corpus records, or else those of its shards since the moments were updated."""
    settings: Mapping[str, Any] = {}
    if exists(join(corpus.root, MANIFEST_NAME)):
        settings = read_manifest(corpus.root).settings
    if SINCE not in settings:
        known = set(before.corpus.shards.values())
        rows = {shard.sha256: shard.rows for shard in corpus.shards if shard.rows}
        added = sum(rows[sha256] for sha256 in rows.keys() - known)
        settings = {
            "files_added": len(rows.keys() - known),
            "files_removed": len(known - rows.keys()),
            "documents_added": added,
            "documents_removed": sum(each.rows for each in before.partitions) + added - corpus.n_documents,
        }
    words = str(settings.get(NEW_WORDS) or "")
    numbers = {name: settings.get(name, 0) for name in CHANGES}
    return {"documents": corpus.n_documents, **numbers, NEW_WORDS: words.split("\n") if words else []}


@dataclass(frozen=True)
class _Updater:
    """What all models of a corpus are updated with."""

    store: Moments
    corpus: Corpus
    steps: int | None
    execution: Execution
    listener: Listener

    def update(self, path: StorePath) -> tuple[bool, Mapping[str, Any] | None]:
        """Update the model at ``path`` if it is of another corpus; whether it was, and what its last update changed."""
        of = self.corpus.fingerprint
        if read_model(path, ()).corpora == (of,):
            # All arrays are verified, also if there is nothing to do.
            return False, read_model(path).provenance.get("update")
        with wanted_model(path, {"corpus": of}, overwrite=True).writing():
            present = read_model(path)
            model, succession = Succession.between(present, self._found(present, path))
            edits = read_edits(path, present)
            after = succession.edits(edits)
            names = [_names(*each) for each in ((present, edits), (model, after))]
            update = {"corpus": of, **succession.fields(*names)}
            model = replace(model, provenance={**model.provenance, "update": update})
            edited = after != TopicEdits(after.n_topics)
            write_model(path, model, edits=after.attributes(model) if edited else None)
        return True, update

    def _found(self, present: Model, path: StorePath) -> Model:
        """Infer topics from the moments, and polish from the present ones if these are polished."""
        plan = TopicsPlan.of_model(present, self.execution, self.listener)
        inference = plan.inference(self.store, int(present.settings["n_topics"]))
        request = {
            "inferred": inference.fingerprint,
            "present": present.fingerprint,
            "algorithm": ALGORITHM_VERSION,
        }
        found = inference.fit(self.listener)
        found = replace(found, provenance={**found.provenance, "fingerprint": fingerprint(request)})
        given = plan.polish
        if given is None:
            return found
        start, replaced = started_from(found, present)
        fewest = min(given.steps, max(FULL_STEPS + 1, given.steps // 3))
        settings = replace(given, steps=self.steps or (given.steps if replaced.size else fewest))
        model = polish_model(
            start, str(path), self.corpus, path, settings, self.execution, self.listener, replace_work=True
        )
        return replace(model, settings={**model.settings, "polish": present.settings["polish"]})


def _names(model: Model, edits: TopicEdits) -> list[str]:
    """The given name, or the first words, of each stored topic."""
    listed = EditedTopics(Path(), model, edits).spelled(model.arrays["prominent_words"][:, :4])
    return [edits.labels.get(k) or ", ".join(words) for k, words in enumerate(listed)]
