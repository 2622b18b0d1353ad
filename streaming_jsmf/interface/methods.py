"""A paragraph on how a model was made, for the methods section of a paper, and BibTeX of what was used.

All that it says is stored: settings and provenance of the model, and the manifests of its corpus and its moments store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from streaming_jsmf.config import PolishSettings
from streaming_jsmf.corpus.format import open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import Dropped, Manifest
from streaming_jsmf.display import percent
from streaming_jsmf.errors import StreamingJSMFError
from streaming_jsmf.evaluation.counts import COUNTED, read_training_counts
from streaming_jsmf.evaluation.metrics import Unavailable, number_of
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.reporting.contents import COUNTS, metrics_of
from streaming_jsmf.storage.paths import node_exists, store_path
from streaming_jsmf.topics.edits import read_edits
from streaming_jsmf.topics.store import (
    AnyModel,
    Model,
    beside,
    fitted_path,
    model_path,
    read_model,
)

#: A paper that is cited, after the words that it stands behind: ``{lee2021rectification}``.
_CITED = re.compile(r"\{(\w+)\}")

_RECTIFIED = {
    "enn": "rectified to be epsilon-nonnegative (ENN)",
    "palm": "rectified by nonnegative factors (PALM)",
    "ipalm": "rectified by nonnegative factors (inertial PALM)",
    "ap": "rectified by alternating projections (AP)",
}
_WEIGHTS = {
    "capped": "each document weighs its length in tokens, but at most 200",
    "uniform": "all documents weigh the same",
    "length": "each document weighs its length in tokens",
}


def methods_of(model: AnyModel) -> str:
    """Return a paragraph on what was read, removed and fitted to make a model, and BibTeX of the papers that were used.

    No pass over documents. What is not stored, and what a deleted corpus or moments store would tell, is left out.
    Raises ``InputError`` if there is no model, ``StoreError`` if it is damaged.

    Examples
    --------
    >>> print(methods_of("model"))  # doctest: +SKIP
    """
    path = model_path(model)
    found = read_model(path, ("word", "prominent_words", "topic_probability"), COUNTED)
    moments = _moments(path, found)
    sentences = [
        *_on_corpus(_manifest(path, found, moments), found),
        *_on_scan(moments, found),
        *(_on_stod(found) if found.engine == "stod" else _on_anchors(found)),
        *_on_polish(found),
        *_on_quality(path, found),
        *_on_edits(path, found),
        _on_software(found),
    ]
    text, entries = " ".join(sentences), papers()
    software = entries.pop("streaming_jsmf").replace("{Software}", f"{{Version {_version(found)}}}")
    used = [entry for key, entry in entries.items() if f"{{{key}}}" in text]
    paragraph = _CITED.sub(lambda cited: _named(entries[cited[1]]), text)
    return "\n\n".join([paragraph, software, *used])


def papers() -> dict[str, str]:
    """The BibTeX entries of all papers and of the software, by key."""
    text = (files("streaming_jsmf.interface") / "papers.bib").read_text(encoding="utf-8")
    return {re.split("[{,]", entry)[1]: entry for entry in text.strip().split("\n\n")}


def _named(entry: str) -> str:
    """Authors and year of a paper, as in "Lee et al. 2021"."""
    [authors], [year] = (re.findall(rf"{field} = {{(.*)}}", entry) for field in ("author", "year"))
    names = [author.partition(",")[0] for author in authors.split(" and ")]
    first = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
    return f"({first} {year})"


def _manifest(path: Any, model: Model, moments: Moments | None) -> Manifest | None:
    """The manifest of the corpus that a model was fitted to, if it is still there."""
    polished = (model.provenance.get("polish_corpus") or {}).get("path")
    scanned = None if moments is None else moments.manifest.corpus.path
    for place in filter(None, (str(beside(fitted_path(path), "corpus")), polished, scanned)):
        with suppress(StreamingJSMFError):
            if (corpus := open_corpus(place)).fingerprint in model.corpora:
                return read_manifest(corpus.root)
    return None


def _moments(path: Any, model: Model) -> Moments | None:
    """The moments store that a model was inferred from, if it is still there."""
    for place in (beside(fitted_path(path), "moments"), store_path(str(model.provenance.get("moments")))):
        with suppress(StreamingJSMFError):
            if (
                node_exists(place)
                and (store := read_store(place)).manifest.corpus.fingerprint in model.corpora
            ):
                return store
    return None


def _on_corpus(manifest: Manifest | None, model: Model) -> Iterator[str]:
    words = f"{model.arrays['word'].size:,} distinct words"
    documents = f"{model.metrics.get('n_documents', 0):,} documents"
    if manifest is None:
        yield f"The corpus has {documents} with {words}."
        return
    read, kept = manifest.settings, manifest.totals
    yield f"The corpus has {kept.documents:,} documents with {kept.tokens:,.0f} tokens of {words}."
    if read.get("documents_read") is not None:
        lost = [_loss(each) for each in manifest.dropped if each.documents or each.words or each.tokens]
        tokens = f" with {read['tokens_read']:,.0f} tokens" if read.get("tokens_read") else ""
        left_out = f"; left out were {', '.join(lost)}" if lost else "; nothing was left out"
        yield f"Of the source, {read['documents_read']:,.0f} documents{tokens} were read{left_out}."
    yield from _on_tokens(read)


def _loss(dropped: Dropped) -> str:
    """What a step dropped: its reason, and how much in the largest unit."""
    sizes = ((dropped.documents, "document"), (dropped.words, "word"), (dropped.tokens, "token"))
    number, unit = next((number, unit) for number, unit in sizes if number)
    tokens = f" ({dropped.tokens:,.0f} tokens)" if unit != "token" and dropped.tokens else ""
    reason = dropped.reason.removeprefix("documents ")
    return f"{number:,.0f} {unit}{'s' * (number != 1)}{tokens} {reason}"


def _on_tokens(read: Mapping[str, Any]) -> Iterator[str]:
    found = []
    if (length := int(read.get("read_ngrams") or 1)) > 1:
        found.append(f"sequences of up to {length} words count as words")
    if read.get("phrases"):
        found.append("frequent pairs of neighbors by NPMI {bouma2009normalized} count as one word")
    if read.get("read_stemmer"):
        found.append(f"words are reduced to their stems (Snowball, {read['read_stemmer']})")
    if read.get("read_boilerplate") == "drop":
        found.append("boilerplate such as markup and quoted mail was removed")
    if found:
        yield f"In texts, {'; '.join(found)}."


def _on_scan(moments: Moments | None, model: Model) -> Iterator[str]:
    settings = model.provenance.get("scan_settings") or {}
    if not settings:
        return
    how = "were summarized from all documents"
    share = None if moments is None else moments.manifest.sample_share
    if settings.get("exact"):
        how = "were counted in full"
    elif settings.get("range_finder") == "halko":
        how = "were summarized by a single-pass random sketch {halko2011finding}"
    elif share is not None and share < 1:
        basis = f"a basis from a random sample of {percent(share)} of the documents"
        how = f"were summarized by exact products with {basis}"
    weights = _WEIGHTS[settings.get("document_weights", "capped")]
    yield (
        f"Co-occurrences of words within documents {how} ({weights}; for up to {settings['max_topics']} topics; seed "
        f"{settings['seed']})."
    )
    error = None if moments is None else moments.scalars_of("eigenvectors").get("estimated_error")
    if error is not None:
        yield f"The relative error of this summary is estimated to be at most about {percent(max(error, 1e-6))}."


def _on_anchors(model: Model) -> Iterator[str]:
    settings, metrics = model.settings, model.metrics
    rectified = metrics.get("rectification") or {}
    steps = ""
    if rectified.get("iterations"):
        changed = f"of at most {rectified['change']:.1e} in the last"
        steps = f" in {rectified['iterations']} steps, with a relative change {changed}"
    matrix = _RECTIFIED.get(settings["rectify"], "not rectified")
    yield (
        f"From these, {settings['n_topics']} topics were inferred by LR-JSMF {{lee2021rectification}}, a low-rank form "
        f"of joint stochastic matrix factorization {{lee2015robust}}: the co-occurrence matrix was {matrix}{steps}; "
        f"{_anchors(settings, metrics)}; all words were divided among the topics of these anchors by least squares."
    )
    if metrics.get("ritz_residual") is not None:
        yield f"Where the summary is least exact, its error is {percent(max(metrics['ritz_residual'], 1e-6))}."


def _anchors(settings: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    least = metrics.get("anchor_min_df")
    among = f" among the words of at least {least:,.0f} documents" if least else ""
    shrunken = metrics.get("anchor_shrinkage")
    among += f", with rows of C shrunk as by {shrunken:,.0f} documents" if shrunken else ""
    given = len(settings.get("anchor_words") or ())
    by_hand = f"{given} anchors were given, and " if given else ""
    if settings.get("anchors") == "soft-clique":
        return f"{by_hand}the anchor words were found as a soft clique {{he2019anchor}}{among}"
    return f"{by_hand}the anchor word of each topic was found by pivoted QR{among}"


def _on_stod(model: Model) -> Iterator[str]:
    settings, metrics = model.settings, model.metrics
    alpha0 = "estimated" if settings.get("alpha0") == "auto" else "given"
    yield (
        f"From these and the third moments of the documents, {metrics['topics_found']} topics were inferred by STOD "
        f"{{wang2014scalable}}, with the tensor power method ({settings['restarts']} starts per topic, at most "
        f"{settings['iterations']} iterations, seed {settings['seed']}); the sum of the Dirichlet prior of shares "
        f"is {metrics['alpha0']:.3g} ({alpha0})."
    )


def _on_polish(model: Model) -> Iterator[str]:
    settings, metrics = model.settings.get("polish"), model.metrics.get("polish")
    if not settings or not metrics:
        return
    drawn = sum(bool(step.get("drawn")) for step in metrics.get("steps") or ())
    draws = f", the first {drawn} of them with topics of words drawn at random" if drawn else ""
    yield (
        f"The topics were then refined in {len(metrics.get('steps') or ())} passes over the documents, or samples of "
        f"them, by collapsed variational inference (CVB0) {{asuncion2009smoothing}} with {settings['rounds']} rounds "
        f"per document{draws} (seed {settings['seed']})."
    )
    if watched := metrics.get("perplexity"):
        last = watched[-1]
        total = int(metrics["n_documents"] + last["documents"])
        note = PolishSettings(held_out=int(settings["held_out"])).held_out_note(total)
        yield (
            f"On {last['documents']:,.0f} documents that were held out ({note}), the perplexity of one half of the "
            f"tokens given the other {{wallach2009evaluation}} is {last['perplexity']:,.0f}, and "
            f"{last['unigram_perplexity']:,.0f} with word frequencies alone."
        )


def _on_quality(path: Any, model: Model) -> Iterator[str]:
    """Quality by counts of words, if ``evaluate`` or ``plot_quality`` has stored them."""
    with suppress(StreamingJSMFError, Unavailable):
        counts = read_training_counts(path, model, COUNTS)
        if counts is not None:
            metrics = metrics_of(model, counts)
            yield (
                f"The mean over topics of the NPMI of their 10 most probable words {{lau2014machine}} is "
                f"{number_of(metrics['npmi']):.3f}, and that of semantic coherence {{mimno2011optimizing}} "
                f"{number_of(metrics['coherence']['mimno_2011']):.1f}."
            )


def _on_edits(path: Any, model: Model) -> Iterator[str]:
    edits = read_edits(path, model)
    told = {
        "were named by hand": len(edits.labels),
        "were merged with others": sum(map(len, edits.merged)),
        "are not shown": len(edits.hidden),
    }
    if found := [f"{number} {what}" for what, number in told.items() if number]:
        yield f"Of the {edits.n_topics} topics, {', '.join(found)}."


def _version(model: Model) -> str:
    return str((model.provenance.get("versions") or {}).get("streaming-jsmf", "unknown"))


def _on_software(model: Model) -> str:
    versions = dict(model.provenance.get("versions") or {})
    versions.pop("streaming-jsmf", None)
    others = ", ".join(f"{name} {version}" for name, version in versions.items())
    when = str(model.provenance.get("committed") or "")[:10]
    return (
        f"All computations were done with streaming-jsmf {_version(model)}{f' ({others})' if others else ''}"
        f"{f' on {when}' if when else ''}; the same input, settings and seed give the same topics to the bit."
    )
