"""Models of the tensor engine from stores: planted topics at any number, the verbs, errors in one line, metrics."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pipelines.common.matching import match_topics
from pipelines.common.tensor_variants import refined_topics, share_alpha0
from streaming_jsmf import InferSettings, ScanSettings, StodSettings, fit, infer, open_model
from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.evaluation.topic_shape import recovery_error
from streaming_jsmf.evaluation.verdicts import warnings_of
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.inference.stod import core_moments
from streaming_jsmf.jobs.events import Event, Iteration
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model, read_model, write_model
from streaming_jsmf.topics.variables import STOD_VARIABLES
from tests.corpora import write_corpus
from tests.outcomes import Command, printed
from tests.stores import SYNCHRONOUS, scanned

Counts = NDArray[np.int64]
K, N_WORDS = 5, 300


class Law:
    """Topics, and documents of given lengths drawn from them with a prior of 0.3 for each topic."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self.word_topic = self._random.dirichlet(np.full(N_WORDS, 0.2), size=K).T

    def documents(self, lengths: NDArray[np.int64]) -> Counts:
        shares = self._random.dirichlet(np.full(K, 0.3), size=len(lengths))
        pairs = zip(lengths, shares, strict=True)
        return np.array([self._random.multinomial(n, self.word_topic @ share) for n, share in pairs])


@pytest.fixture(scope="module")
def corpora() -> tuple[Law, dict[str, Counts]]:
    law, random = Law(), np.random.default_rng(2)
    plain = law.documents(random.poisson(60, 2000))
    ragged = law.documents(np.minimum(random.lognormal(3.2, 1.3, 2000).astype(int), 4000))
    huge = plain.copy()
    huge[7] = random.multinomial(90_000, random.dirichlet(np.full(N_WORDS, 0.05)))
    copies = np.vstack([plain, np.repeat(plain[3:4], 300, axis=0)])
    return law, {"plain": plain, "ragged": ragged, "huge": huge, "copies": copies}


@pytest.fixture(scope="module")
def plain(corpora: tuple[Law, dict[str, Counts]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the plain corpus with the third moment; the corpus lies beside it."""
    folder = tmp_path_factory.mktemp("stod")
    write_corpus(folder / "corpus", corpora[1]["plain"], row_group_rows=500)
    scanned(folder / "corpus", folder / "m", ScanSettings(max_topics=K, third_moment=True))
    return folder / "m"


def fitted(counts: Counts, folder: Path, weights: DocumentWeights, settings: StodSettings) -> Model:
    write_corpus(folder / f"corpus-{weights}", counts, row_group_rows=500)
    scan_settings = ScanSettings(max_topics=K, third_moment=True, document_weights=weights)
    moments = scanned(folder / f"corpus-{weights}", folder / f"m-{weights}", scan_settings)
    return fit_moments(moments, settings, threads=1)


def error(model: Model, law: Law) -> float:
    return match_topics(model.arrays["word_topic"], law.word_topic).mean_l1


AUTO, TRUE = StodSettings(K), StodSettings(K, alpha0=1.5)


def test_planted_topics_and_their_prior_are_found(
    corpora: tuple[Law, dict[str, Counts]], plain: Path
) -> None:
    law, moments = corpora[0], open_moments(plain)
    found = fit_moments(moments, AUTO, threads=1)
    assert warnings_of(found.metrics) == []
    assert error(found, law) < 0.15
    assert error(fit_moments(moments, TRUE, threads=1), law) < 0.14
    assert found.metrics["alpha0"] == pytest.approx(1.5, rel=0.15)
    np.testing.assert_allclose(found.arrays["alpha"], 0.3, atol=0.08)
    assert found.metrics["eigengap"] > 2
    assert found.metrics["ritz_residual"] < 0.1


@pytest.mark.parametrize(
    ("kind", "bound", "other", "times"),
    [("ragged", 0.18, "uniform", 1.4), ("huge", 0.15, "length", 3.5)],
)
def test_weights_are_for_documents_of_other_lengths(
    kind: str,
    bound: float,
    other: DocumentWeights,
    times: float,
    corpora: tuple[Law, dict[str, Counts]],
    tmp_path: Path,
) -> None:
    law, counts = corpora[0], corpora[1][kind]
    capped = error(fitted(counts, tmp_path, "capped", AUTO), law)
    assert capped < bound
    assert error(fitted(counts, tmp_path, other, AUTO), law) > times * capped


@pytest.mark.parametrize("alpha0", ["auto", "1"])
def test_a_corpus_of_one_document_over_and_over(alpha0: str, tmp_path: Path, invoke: Command) -> None:
    counts = np.repeat(np.random.default_rng(0).poisson(20.0, size=(1, 40)), 300, axis=0)
    corpus, store, model = write_corpus(tmp_path / "copies", counts), tmp_path / "m", tmp_path / "model"
    scanned(corpus, store, ScanSettings(max_topics=4, third_moment=True))
    outcome = invoke("infer", store, model, "--topics", 4, "--engine", "stod", "--stod-alpha0", alpha0)
    assert outcome.code == 0
    assert re.search(r"\b1 topics, 4\b", outcome.err)
    found = read_model(model)
    assert found.metrics["topics_found"] == found.metrics["effective_rank"] == 1
    assert abs(found.arrays["word_topic"][:, 0] - counts[0] / counts[0].sum()).sum() < 0.1


def test_the_model_is_labelled_and_complete(plain: Path, tmp_path: Path) -> None:
    steps: list[Event] = []
    infer(plain, tmp_path / "model", AUTO, listener=steps.append)
    data = xr.open_zarr(str(tmp_path / "model"), consolidated=False).load()
    polished = {"topic_", "topic_topic_of_documents", "shown_word", "origin_words", "origin_probability"}
    assert {name: data[name].dims for name in data.variables} == {
        name: variable.dimensions for name, variable in STOD_VARIABLES.items() if name not in polished
    }
    assert data["word_topic"].sel(word="word0003").shape == (K,)
    assert data["alpha"].attrs["symbol"] == "alpha"
    xr.testing.assert_identical(data, open_model(tmp_path / "model").load())
    model = read_model(tmp_path / "model")
    arrays = model.arrays
    np.testing.assert_allclose(arrays["word_topic"].sum(axis=0), 1.0, atol=1e-12)
    assert arrays["word_topic"].min() >= 0
    assert arrays["topic_probability"].sum() == pytest.approx(1.0)
    assert list(arrays["topic_probability"]) == sorted(arrays["topic_probability"], reverse=True)
    np.testing.assert_allclose(arrays["alpha"], model.metrics["alpha0"] * arrays["topic_probability"])
    np.testing.assert_allclose(arrays["word_topic"] @ arrays["topic_probability"], arrays["word_mean"])
    np.testing.assert_allclose(arrays["topic_probability"], 1 / arrays["lambda"] ** 2, rtol=0.1)
    assert arrays["lambda"].min() >= 1
    assert {"prior", "tensor", "words"} <= model.provenance["stages"].keys()
    assert (model.engine, model.settings["engine"], model.settings["alpha0"]) == ("stod", "stod", "auto")
    assert model.metrics["share_sum"] == pytest.approx(1.0, abs=0.05)
    assert model.metrics["mass_without_topic"] == 0
    assert {event.stage for event in steps if isinstance(event, Iteration)} == {"rectification"}
    top = arrays["prominent_words"][:, 0]
    rows = open_moments(plain).cooccurrence_rows(top)
    np.testing.assert_array_equal(arrays["characteristic_words"][:, 0], rows.argmax(axis=1))


def test_any_k_and_alpha0_come_from_one_store(plain: Path) -> None:
    moments = open_moments(plain)
    width = moments.tensor_moments().basis.shape[1]
    assert width > K
    for settings in (StodSettings(2, 0.1), StodSettings(K, 10.0), StodSettings(width, 2.0)):
        found = fit_moments(moments, settings, threads=1)
        assert found.metrics["topics_asked"] == settings.n_topics
        assert found.metrics["topics_found"] + found.metrics["discarded"] == found.metrics["effective_rank"]
        np.testing.assert_allclose(found.arrays["word_topic"].sum(axis=0), 1.0, atol=1e-12)
    with pytest.raises(InputError, match=rf"\b{width} .*\b{width + 1} "):
        fit_moments(moments, StodSettings(width + 1), threads=1)


def test_the_same_settings_give_the_same_bits_and_other_seeds_the_same_topics(plain: Path) -> None:
    moments = open_moments(plain)
    first = fit_moments(moments, AUTO, threads=1)
    again = fit_moments(open_moments(plain), AUTO, threads=3)
    for name, values in first.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], values, err_msg=name)
    assert again.provenance["fingerprint"] == first.provenance["fingerprint"]
    other = fit_moments(moments, StodSettings(K, seed=1), threads=1)
    assert StodSettings(K, alpha0=1).fields() == StodSettings(K, alpha0=1.0).fields()
    assert str(StodSettings(K, alpha0=1).alpha0) == "1.0"
    assert other.provenance["fingerprint"] != first.provenance["fingerprint"]
    np.testing.assert_allclose(other.arrays["word_topic"], first.arrays["word_topic"], atol=1e-9)


def test_topics_and_info(plain: Path, tmp_path: Path) -> None:
    infer(plain, tmp_path / "model", TRUE)
    rows = json.loads(printed("topics", tmp_path / "model", "--json"))
    assert [("anchor" in row, row["duplicate_of"]) for row in rows] == [(False, None)] * K
    shown = json.loads(printed("info", tmp_path / "model", "--json"))
    assert (shown["engine"], shown["settings"]["alpha0"]) == ("stod", 1.5)


def test_fit_scans_once_and_adds_what_is_missing(plain: Path, tmp_path: Path) -> None:
    def fitted_as(name: str, topics: list[int], **options: Any) -> None:
        fit(
            plain.parent / "corpus",
            tmp_path / name,
            topics,
            scan_settings=ScanSettings(max_topics=K),
            moments=tmp_path / "moments",
            execution=SYNCHRONOUS,
            **options,
        )

    def has_third_moment() -> bool:
        return open_moments(tmp_path / "moments").settings.third_moment

    fitted_as("lr", [K])
    assert not has_third_moment()
    fitted_as("both", [3, K], infer_settings=StodSettings(1))
    shutil.rmtree(tmp_path / "both" / "k=3")
    fitted_as("both", [3, K], infer_settings=StodSettings(1))
    assert has_third_moment()
    assert [read_model(tmp_path / "both" / f"k={k}").metrics["topics_asked"] for k in (3, K)] == [3, K]
    fitted_as("lr", [K], infer_settings=InferSettings(K), overwrite=True)
    assert has_third_moment()


def test_selected_partitions_have_no_third_moment(plain: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus = shutil.copytree(plain.parent / "corpus", tmp_path / "years")
    for number, shard in enumerate(sorted(corpus.glob("*.parquet"))):
        table = pq.read_table(shard)
        pq.write_table(table.append_column("year", pa.array([1990 + number] * len(table))), shard)
    settings = ScanSettings(max_topics=K, partition_by="year", third_moment=True)
    moments: Moments = scanned(corpus, tmp_path / "m", settings)
    infer(moments, tmp_path / "whole", AUTO)
    infer(moments, tmp_path / "lr", InferSettings(3), partitions="1990")
    with pytest.raises(InputError, match="the third moment is that of the whole store"):
        infer(moments, tmp_path / "one", AUTO, partitions="1990")


# -- The tensor engine at numbers of topics that no corpus was made of: alpha0, topics, and what they predict --


LAW = Law()
#: Sum of the prior that the law_documents of the law are drawn with.
TRUE_SUM = 0.3 * K
ASKED = (K, 2 * K)


@pytest.fixture(scope="module")
def law_documents() -> NDArray[np.int64]:
    return LAW.documents(np.random.default_rng(5).poisson(60, 2400))


@pytest.fixture(scope="module")
def law_moments(law_documents: NDArray[np.int64], tmp_path_factory: pytest.TempPathFactory) -> Moments:
    """Of the first 2,000 law_documents."""
    return scanned_third(law_documents[:2000], max(ASKED), tmp_path_factory.mktemp("any-k"))


def scanned_third(counts: NDArray[np.int64], max_topics: int, folder: Path) -> Moments:
    corpus = write_corpus(folder / "corpus", counts, row_group_rows=500)
    settings = ScanSettings(max_topics=max_topics, third_moment=True)
    return scanned(corpus, folder / "m", settings)


def law_error(model: Model) -> float:
    return recovery_error(model.arrays["word_topic"], LAW.word_topic)


@pytest.mark.parametrize("n_topics", ASKED)
def test_alpha0_is_found_whatever_k_is(n_topics: int, law_moments: Moments) -> None:
    true = fit_moments(law_moments, StodSettings(n_topics, alpha0=TRUE_SUM), threads=1)
    found = fit_moments(law_moments, StodSettings(n_topics), threads=1)
    assert law_error(found) < 1.35 * law_error(true)
    assert found.metrics["alpha0"] == pytest.approx(TRUE_SUM, rel=0.7)
    assert not found.metrics["alpha0_at_end"]
    settings = StodSettings(
        n_topics, share_alpha0(core_moments(law_moments.tensor_moments()), StodSettings(n_topics))
    )
    shares = fit_moments(law_moments, settings, threads=1)
    refined = refined_topics(law_moments, StodSettings(n_topics), TRUE_SUM).word_topic
    if n_topics == K:
        assert shares.metrics["alpha0"] == pytest.approx(TRUE_SUM, rel=0.15)
        assert shares.metrics["share_sum"] == pytest.approx(1.0, abs=1e-3)
        assert 0 < match_topics(refined, true.arrays["word_topic"]).mean_l1 < 0.05
    else:
        assert shares.metrics["alpha0"] > 3 * TRUE_SUM, "what is wrong with that rule"
        assert law_error(shares) > 1.35 * law_error(true)


def test_topics_predict_documents_nearly_as_anchor_words_do(
    law_moments: Moments, law_documents: NDArray[np.int64]
) -> None:
    n_topics = K + 2

    def completed(topics: NDArray[np.float64], prior: NDArray[np.float64]) -> Completion:
        completer = Completer.of(topics, prior, law_moments.term_count)
        return completer.complete(csr_array(law_documents[2000:]), threads=1)

    lr = fit_moments(law_moments, InferSettings(n_topics, correlations="refined"), threads=1).arrays
    prior = dirichlet_prior(lr["topic_probability"], prior_sum(lr["topic_topic"], lr["topic_probability"]))
    anchored = completed(lr["word_topic"], prior)
    model = fit_moments(law_moments, StodSettings(n_topics), threads=1).arrays
    found = completed(model["word_topic"], model["alpha"])
    assert found.perplexity < 1.1 * anchored.perplexity < anchored.unigram_perplexity


def test_the_threshold_changes_word_lists_alone(law_moments: Moments) -> None:
    settings = StodSettings(K + 2, threshold=0.0)
    plain, usual = (
        fit_moments(law_moments, each, threads=1) for each in (settings, replace(settings, threshold=2.0))
    )
    lists = {"prominent_words", "characteristic_words", "label_words"}
    for name in plain.arrays.keys() - lists:
        np.testing.assert_array_equal(plain.arrays[name], usual.arrays[name], err_msg=name)
    assert not np.array_equal(plain.arrays["prominent_words"], usual.arrays["prominent_words"])


def test_words_of_short_documents_get_their_share_and_a_warning(tmp_path: Path) -> None:
    """The third moment sees law_documents of three tokens and more; the last ten words are in shorter ones."""
    random = np.random.default_rng(3)
    long = np.hstack([LAW.documents(np.full(400, 20)), np.zeros((400, 10), np.int64)])
    short = np.zeros((300, long.shape[1]), np.int64)
    short[:, -10:] = random.multinomial(2, np.full(10, 0.1), size=300)
    law_moments = scanned_third(np.vstack([long, short]), K, tmp_path)
    model = fit_moments(law_moments, StodSettings(K), threads=1)
    assert (model.arrays["word_topic"][-10:] > 0).all()
    assert (model.arrays["word_topic"].sum(axis=1) > 0)[law_moments.term_count > 0].all()
    assert model.metrics["mass_without_topic"] == pytest.approx(600 / 8600)
    write_model(tmp_path / "model", model)
    warnings = warnings_of(read_model(tmp_path / "model", ()).metrics)
    assert any("7.0% of all tokens" in sentence for sentence in warnings)


def test_without_anchor_words_alpha0_must_be_given(tmp_path: Path) -> None:
    """Words of five law_documents each, of 1,000: none is frequent enough for an anchor."""
    counts = np.zeros((1000, 600), np.int64)
    for document, row in enumerate(counts):
        row[document % 200 * 3 : document % 200 * 3 + 3] = 2
    with pytest.raises(TooFewFactorsError, match=r"\b0 words .* 4 topics.*alpha0") as caught:
        fit_moments(scanned_third(counts, 4, tmp_path), StodSettings(4), threads=1)
    assert "\n" not in str(caught.value)


# -- The verb ``evaluate`` on models of the tensor engine, which have no anchors and no correlations --


SCHEMA = json.loads(
    (Path(__file__).parent.parent / "docs" / "schemas" / "evaluate.schema.json").read_text(encoding="utf-8")
)
SIMULATED_K = 4
UNCORRELATED = {
    "approximation",
    "relative_approximation",
    "dominancy",
    "relative_dominancy",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated corpus with its truth, and what the verb ``fit`` makes of it."""
    root = tmp_path_factory.mktemp("stod_evaluate")
    simulate_lda(root / "corpus", n_documents=2000, n_words=80, n_topics=SIMULATED_K, mean_length=50)
    # Topics of 80 words have no anchors, which the estimate of alpha0 needs.
    options = ("--engine", "stod", "--stod-alpha0", 0.4, "--partition-nonzeros", 4000)
    printed(
        "fit",
        root / "corpus",
        root / "model",
        "--topics",
        SIMULATED_K,
        *options,
        "--scheduler",
        "synchronous",
    )
    return root


def shown_by(verb: str, *arguments: object) -> Any:
    shown = json.loads(printed(verb, *arguments, "--json"))
    if verb == "evaluate":
        jsonschema.Draft202012Validator(SCHEMA).validate(shown)
    return shown


def test_a_model_alone_gives_what_its_moments_allow(folder: Path) -> None:
    shown = shown_by("evaluate", folder / "model")
    assert (shown["engine"], shown["n_topics"]) == ("stod", SIMULATED_K)
    nulls = {name for name, value in shown["metrics"].items() if value is None}
    assert nulls == UNCORRELATED | {
        "coherence",
        "u_mass",
        "npmi",
        "perplexity",
        "recovery_error",
        "stability",
    }
    assert {shown["missing"][name] for name in UNCORRELATED} == {"the model has no topic_topic"}
    assert "engine lr-jsmf" in shown["missing"]["stability"]
    assert shown["certificates"]["topics_found"] == SIMULATED_K
    assert shown["warnings"] == []
