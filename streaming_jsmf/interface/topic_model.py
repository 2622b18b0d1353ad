"""``TopicModel``, a model shown as its topics, which can be named, merged and hidden."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from upath import UPath

from streaming_jsmf.config import DEFAULT_WORDS, DocumentQuery
from streaming_jsmf.config.fields import declared_in
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.display import location, printable
from streaming_jsmf.documents import queries as documents
from streaming_jsmf.documents.effects import Effects, effects
from streaming_jsmf.documents.over_time import over_time as documents_over_time
from streaming_jsmf.documents.shares import frame
from streaming_jsmf.documents.transform import shares_of, temporary_shares
from streaming_jsmf.errors import InputError
from streaming_jsmf.interface.methods import methods_of
from streaming_jsmf.interface.update import Update, update
from streaming_jsmf.reporting import plots
from streaming_jsmf.reporting.arrange import merge_nearest, stop_word_candidates, tree_of
from streaming_jsmf.reporting.document_map import SAMPLED, document_map
from streaming_jsmf.reporting.effects import plot_effects
from streaming_jsmf.reporting.report import ShownReport, show
from streaming_jsmf.reporting.topics import (
    by_share,
    frame_of,
    read_topics,
    topic_html,
    topic_text,
    warnings_about,
)
from streaming_jsmf.storage.paths import StorePath, exists, store_path
from streaming_jsmf.topics.edits import TopicEdits, edit_topics, read_edits, shown_topics
from streaming_jsmf.topics.store import (
    AnyModel,
    Model,
    corpus_beside,
    model_path,
    open_model,
    read_model,
    save_model,
    write_model,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Number of topics, the largest ones, in a representation.
SHOWN = 10


class TopicModel:
    """A fitted model on a disk or behind a URL; returned by ``fit`` and ``infer``.

    It can be passed wherever a model path is expected: ``evaluate(model)``, ``report(model, "topics.html")``. Names of
    topics and lists of merged and hidden topics are stored next to the arrays, which never change, and apply to
    ``topics``, ``documents`` and reports, also on the command line. Each change is written immediately and can be
    undone. ``path`` is a path or URL of a model of any engine, the result of ``open_model``, or a fitted estimator;
    ``InputError`` is raised if there is no model.

    A pickled model is its path. One in a temporary directory is pickled with its arrays and edits, but without its
    corpus, and each copy has a directory of its own.

    Examples
    --------
    >>> model = TopicModel("model")  # doctest: +SKIP
    >>> model.label(3, "elections").merge([5, 8]).hide(0)  # doctest: +SKIP
    """

    def __init__(self, path: AnyModel) -> None:
        self.path: StorePath = model_path(path).absolute()  # stays valid after os.chdir
        self._corpus: str | None = None
        # What the temporary directory of the model is removed with: itself (True), a model or an estimator.
        owner = path if isinstance(path, os.PathLike) and not isinstance(path, Path | UPath) else None
        self._temporary: Any = owner if getattr(owner, "_temporary", owner) else None
        self._read()

    def __fspath__(self) -> str:
        """Path or URL of the model."""
        return str(self.path)

    @property
    def n_topics(self) -> int:
        """K, including merged and hidden topics."""
        return int(self._read().arrays["topic_probability"].size)

    @property
    def engine(self) -> str:
        """``lr-jsmf`` or ``stod``."""
        return self._read().engine

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the inference."""
        return self._read().settings

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Certificates of the result; for the metrics of the papers, call ``evaluate``."""
        return self._read().metrics

    @property
    def provenance(self) -> Mapping[str, Any]:
        """How the model was made: its moments, corpora, versions and the cost of each stage."""
        return self._read().provenance

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays of the model in memory, read and compared with their digests; ``dataset`` describes them."""
        return read_model(self.path).arrays

    @property
    def dataset(self) -> xr.Dataset:
        """The arrays of the model, as returned by ``open_model``; in memory if its directory is temporary."""
        found = open_model(self.path)
        # The directory is removed with the model, maybe before lazy arrays are read.
        return found.load() if self._temporary else found

    @property
    def corpus(self) -> Corpus | None:
        """The corpus used by ``fit``, or that of the moments; None if it is unknown or missing."""
        if self._corpus and exists(self._corpus):
            return open_corpus(self._corpus)
        return corpus_beside(self.path)

    @property
    def ingest_report(self) -> pd.DataFrame | None:
        """What the ingest of ``fit`` read, dropped in each step, and kept; None if that is unknown."""
        corpus = self.corpus
        return None if corpus is None else corpus.ingest_report

    @property
    def edits(self) -> TopicEdits:
        """Names, merged and hidden topics."""
        return read_edits(self.path, self._read())

    def topics(self, words: int = DEFAULT_WORDS, *, characteristic: bool = False) -> pd.DataFrame:
        """Return ``topic``, ``share``, ``label`` and ``words`` of the topics with edits applied, by descending share.

        With ``characteristic`` also lists of ``characteristic`` and ``frex`` words, which are frequent in the topic and
        rarer in the others, by relevance (Sievert and Shirley 2014) and by FREX (Bischof and Airoldi 2012).

        ``label`` is the given name, or words; ``words`` are pairs of a word and p(word | topic) in descending order.
        The share of a merged topic is the sum over its parts, and its p(word | topic) their mean weighted by share.
        Hidden topics keep their share. Raises ``InputError`` if ``words`` is below 1, ``StoreError`` if the model is
        damaged.
        """
        return frame_of(self.path, words, characteristic=characteristic)

    def label(self, topic: int, name: str | None) -> TopicModel:
        """Name a topic; None removes the name.

        Like every change, raises ``InputError`` if the topic does not exist or was merged into another one.
        """
        return self.edit(lambda edits: edits.label(topic, name))

    def label_with(
        self,
        function: Callable[[list[str], list[str]], str | None],
        shares: str | Path | None = None,
        *,
        words: int = DEFAULT_WORDS,
    ) -> TopicModel:
        """Name the shown topics by a function, for example one that asks a language model; only it sees the words.

        The function gets the most probable ``words`` of a topic and the excerpts of its top documents in ``shares``, an
        empty list if these are not given or have no excerpts. It returns a name, or None to keep the label. All names
        are stored in one step after the last call. Raises ``InputError`` if a name is no text of 1 to 200 characters.

        Examples
        --------
        >>> model.label_with(lambda words, excerpts: " / ".join(words[:2]))  # doctest: +SKIP
        """
        names = {}
        for topic in read_topics(self.path, words):
            found = {} if shares is None else self.documents(shares, topic.number)
            excerpts = [text for text in found.get("excerpt", ()) if isinstance(text, str)]
            names[topic.number] = function([word.text for word in topic.words], excerpts)

        def named(edits: TopicEdits) -> TopicEdits:
            for topic, name in names.items():
                edits = edits if name is None else edits.label(topic, name)
            return edits

        return self.edit(named)

    def merge(self, topics: Iterable[int]) -> TopicModel:
        """Show topics as one, with the number and name of the first."""
        return self.edit(lambda edits: edits.merge(topics))

    def unmerge(self, *topics: int) -> TopicModel:
        """Show the parts of these merged topics separately again; by default of all."""
        return self.edit(lambda edits: edits.unmerge(*topics))

    def hide(self, *topics: int) -> TopicModel:
        """Hide these topics."""
        return self.edit(lambda edits: edits.hide(*topics))

    def unhide(self, *topics: int) -> TopicModel:
        """Show these topics again; by default all topics."""
        return self.edit(lambda edits: edits.unhide(*topics))

    def hierarchy(self) -> NDArray[np.float64]:
        """Return the hierarchy of the shown topics that the report draws, as a linkage of SciPy, (K' - 1, 4).

        Complete linkage of Hellinger distances between p(word | topic), from 0 to 1. Leaves are the shown topics in the
        order of their numbers.

        Examples
        --------
        >>> from scipy.cluster.hierarchy import dendrogram
        >>> labels = model.topics().sort_values("topic")["label"].tolist()  # doctest: +SKIP
        >>> dendrogram(model.hierarchy(), labels=labels, orientation="left")  # doctest: +SKIP
        """
        return tree_of(shown_topics(self.path)).linkage

    def reduce(self, n_topics: int) -> TopicModel:
        """Merge the nearest topics of ``hierarchy`` until ``n_topics`` are shown; ``unmerge`` undoes it.

        Topics with many words in common are near. Nothing is computed from the documents: p(word | topic) of merged
        topics is averaged by share. Raises ``InputError`` if ``n_topics`` is below 1.

        Examples
        --------
        >>> model.reduce(10)  # doctest: +SKIP
        """
        return self.edit(lambda edits: merge_nearest(self.path, edits, number=n_topics))

    def merge_similar(self, distance: float) -> TopicModel:
        """Merge topics of ``hierarchy`` that are all within a Hellinger distance, from 0 to 1, of each other.

        The distance of two topics is sqrt(1 - sum_w sqrt(p(w | i) p(w | j))): 0 if their words have the same
        probabilities, 1 if they have no word in common. Copies of a topic are nearer than about 0.4, and unrelated
        topics farther than 0.8. The log says what was merged at which distance, or how far the nearest topics are;
        ``hierarchy()[:, 2]`` has the distances of all merges. ``unmerge`` undoes it.
        """
        return self.edit(lambda edits: merge_nearest(self.path, edits, distance=distance))

    def stop_word_candidates(self, number: int = 20) -> pd.DataFrame:
        """Return frequent words of most topics, with ``frequency``, ``entropy`` and the number of ``topics``.

        They are the most frequent words whose p(topic | word) is spread over more than half of the topics. See
        ``reporting.arrange.stop_word_candidates``; ``fit`` with ``stop_words=["auto", set(words)]`` removes them.
        """
        return stop_word_candidates(self.path, number)

    def documents(self, shares: Any = None, topic: int | None = None, **options: Any) -> pd.DataFrame:
        """Return the top documents of a topic or, with ``by`` or without ``topic``, mean shares by a column.

        By default of the corpus of ``fit``, whose shares are computed once and kept next to a model
        (``MODEL.shares.parquet``). ``shares`` are others: what ``transform`` wrote or returned, or texts, a table, a
        file or a corpus, as in ``transform`` and with its options, such as ``text="body"``.

        Options of the query are ``number``, ``columns``, ``by``, ``similar`` and ``outliers``, as of the verb; see
        ``documents_of_topic``, ``shares_by``, ``similar_documents`` and ``least_explained_documents``.

        Examples
        --------
        >>> model.documents(topic=0)  # doctest: +SKIP
        >>> model.documents(["a new text", "another one"], topic=0, number=1)  # doctest: +SKIP
        """
        of_query = declared_in((DocumentQuery,)).keys()
        asked = {name: options.pop(name) for name in [*options] if name in of_query}
        with shares_of(self, shares, self.corpus, **options) as found:
            return frame(documents.query(self, found, topic=topic, **asked))

    def over_time(
        self, by: str | Sequence[str], shares: str | Path | None = None, **options: Any
    ) -> pd.DataFrame:
        """Return mean topic shares in each period of time; options are those of the function ``over_time``.

        Without ``shares``, those of the corpus of ``fit`` are computed, from which ``words`` come without ``corpus``.
        """
        given = options.get("corpus") or self.corpus
        if given is None and (shares is None or options.get("words")):
            raise InputError("the corpus of this model is unknown; give shares=, and corpus= for words")
        if options.get("words"):
            options["corpus"] = given
        with shares_of(self, shares, given) as found:
            return documents_over_time(self, found, by, **options)

    def effects(self, formula: str, shares: Any = None, **options: Any) -> Effects:
        """Return the effects of covariates of documents on topic shares; see the function ``effects``.

        ``shares`` are what ``transform`` wrote, by default those of the corpus of ``fit``.

        Examples
        --------
        >>> model.effects("party + bs(year, df=4)").frame  # doctest: +SKIP
        """
        options["corpus"] = options.get("corpus") or self.corpus
        with shares_of(self, shares, options["corpus"]) as found:
            return effects(self, found, formula, **options)

    def predicted(
        self,
        variable: str,
        at: Mapping[str, Any] | None = None,
        *,
        formula: str,
        shares: Any = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Return the expected topic shares over a covariate of ``formula``; see ``effects`` and ``Effects.predicted``.

        ``effects(formula).predicted(variable)`` does not compute the effects again for each call.

        Examples
        --------
        >>> model.predicted("year", at={"party": "left"}, formula="party * year")  # doctest: +SKIP
        """
        return self.effects(formula, shares, **options).predicted(variable, at)

    def plot_effects(
        self,
        formula: str,
        variable: str | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        ax: Axes | None = None,
        figsize: tuple[float, float] | None = None,
        title: str | None = None,
        shares: Any = None,
        **options: Any,
    ) -> Figure:
        """Draw effects, or with ``variable`` the expected shares over it, as the function ``plot_effects``.

        Examples
        --------
        >>> model.plot_effects("party * year", "year", at={"party": ["left", "right"]})  # doctest: +SKIP
        """
        found = self.effects(formula, shares, **options)
        return plot_effects(found, variable, at=at, ax=ax, figsize=figsize, title=title)

    def document_map(
        self, shares: Any = None, *, number: int = SAMPLED, seed: int = 0, **options: Any
    ) -> pd.DataFrame:
        """Return the positions of a sample of documents on a plane, as the function ``document_map``.

        ``shares`` and ``options`` are those of ``documents``: by default of the corpus of ``fit``, or of other texts.

        Examples
        --------
        >>> model.document_map().plot.scatter("x", "y", c="topic")  # doctest: +SKIP
        """
        with shares_of(self, shares, self.corpus, **options) as found:
            return document_map(self, found, number=number, seed=seed)

    plot_map = plots.plot_map
    plot_topics = plots.plot_topics
    plot_correlations = plots.plot_correlations
    plot_documents = plots.plot_documents
    plot_quality = plots.plot_quality

    def plot_over_time(
        self,
        by: str | Sequence[str] | None = None,
        shares: Any = None,
        *,
        topics: Sequence[int] | None = None,
        ax: Any = None,
        figsize: tuple[float, float] | None = None,
        title: str | None = None,
        interactive: bool = False,
    ) -> Any:
        """Draw mean shares of topics over time, or by other columns, as the function ``plot_over_time``.

        ``by`` is read as by ``over_time``; without ``shares``, those of the corpus of ``fit`` are computed once.

        Examples
        --------
        >>> model.plot_over_time("date:year,party", topics=[3, 7])  # doctest: +SKIP
        """
        own: dict[str, Any] = {"ax": ax, "figsize": figsize, "title": title, "interactive": interactive}
        return plots.plot_over_time(self, shares, topics, by=by, **own)

    def transform(self, source: Any, **options: Any) -> pd.DataFrame:
        """Return the topic shares of documents with edits applied: one row per document, one column per topic number.

        The index is that of the source (pandas, Dask) if each of its rows is a document, or the document ids, as with
        ``id`` or ``split``. All rows are in memory; for more documents use the function ``transform``, which has the
        same sources, options, such as ``text="body"``, and errors.
        """
        with temporary_shares(self, source, **options) as shares:
            table = documents.shares_table(self, shares)
        index = getattr(source, "index", None)
        index = index.compute() if index is not None and hasattr(index, "compute") else index  # of Dask
        if options.keys() & {"id", "split"} or not isinstance(index, Sized) or len(index) != len(table):
            return table
        return table.set_index(index)

    def update(self, source: Any, **options: Any) -> Update:
        """Follow the source of the model, or add documents; see the function ``update``, whose options these are.

        Examples
        --------
        >>> print(model.update("articles/*.csv"))  # doctest: +SKIP
        """
        return update(self, source, **options)

    def show(self, *, height: int = 800, **options: Any) -> ShownReport:
        """Show the report in a notebook; arguments and errors are those of the function ``show``."""
        return show(self, height=height, **options)

    def methods(self) -> str:
        """Return a paragraph for the methods section of a paper, and BibTeX of what was used; see ``methods_of``.

        Examples
        --------
        >>> print(model.methods())  # doctest: +SKIP
        """
        return methods_of(self)

    def save(self, path: str | Path | StorePath, *, overwrite: bool = False) -> TopicModel:
        """Write the model and its edits, but not its corpus and moments, to ``path``, and return the new model.

        Raises ``InputError`` if another model is there (without ``overwrite``), or something else.
        """
        target, edits = store_path(path, "a model"), self.edits
        save_model(target, read_model(self.path), overwrite=overwrite)
        saved = TopicModel(target)
        return saved if edits == TopicEdits(edits.n_topics) else saved.edit(lambda _: edits)

    def __getstate__(self) -> dict[str, Any]:
        if not self._temporary:
            return self.__dict__
        return {"model": read_model(self.path), "edits": self.edits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model" not in state:
            self.__dict__.update(state)
            return
        folder = tempfile.TemporaryDirectory(prefix="streaming-jsmf-")
        weakref.finalize(self, folder.cleanup)
        self.path, self._corpus, self._temporary = Path(folder.name) / "model", None, True
        write_model(self.path, state["model"])
        self.edit(lambda _: state["edits"])

    def __repr__(self) -> str:
        shown = by_share(read_topics(self.path, probabilities=False))
        rest = f"\n... and {len(shown) - SHOWN} more: topics()" if len(shown) > SHOWN else ""
        warnings = "".join(f"\nwarning: {printable(text)}" for text in warnings_about(self.path, shown))
        return f"{printable(self._caption(len(shown)))}\n{topic_text(shown[:SHOWN])}{rest}{warnings}"

    def _repr_html_(self) -> str:
        shown = by_share(read_topics(self.path, probabilities=False))
        return topic_html(shown, self._caption(len(shown)))

    def _caption(self, shown: int) -> str:
        model = self._read()
        merged_or_hidden = f", {shown} shown" if shown < self.n_topics else ""
        return (
            f"TopicModel of {self.n_topics} topics{merged_or_hidden} ({model.engine}): {location(self.path)}"
        )

    def edit(self, change: Callable[[TopicEdits], TopicEdits]) -> TopicModel:
        """Apply several changes in one step: ``model.edit(lambda edits: edits.merge([3, 7]).hide(5))``."""
        edit_topics(self.path, self._read(), change)
        return self

    def _read(self) -> Model:
        return read_model(self.path, ("topic_probability",))
