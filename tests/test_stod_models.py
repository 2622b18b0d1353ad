"""Models of the tensor engine from stores: planted topics found in hard corpora, the verbs, errors in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from streaming_jsmf import STOD, InferSettings, ScanSettings, StodSettings, fit, infer, open_model
from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.evaluation.verdicts import warnings_of
from streaming_jsmf.jobs.events import Event, Iteration
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model, read_model
from streaming_jsmf.topics.variables import STOD_VARIABLES
from tests.corpora import write_corpus
from tests.outcomes import Command, refused
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
    polished = {"topic_", "topic_topic_of_documents"}
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
    refined = fit_moments(moments, StodSettings(K, refine="als"), threads=1)
    assert not np.allclose(refined.arrays["word_topic"], first.arrays["word_topic"], atol=1e-9)
    assert match_topics(refined.arrays["word_topic"], first.arrays["word_topic"]).mean_l1 < 0.05


def test_topics_and_info(plain: Path, tmp_path: Path, invoke: Command) -> None:
    model = tmp_path / "model"
    made = invoke("infer", plain, model, "--topics", K, "--engine", "stod", "--stod-alpha0", 1.5)
    assert (made.code, "anchor" in made.out) == (0, False)
    rows: list[dict[str, Any]] = json.loads(invoke("topics", model, "--json").out)
    assert [(row["duplicate_of"], len(row["prominent"])) for row in rows] == [(None, 10)] * K
    shown = json.loads(invoke("info", model, "--json").out)
    assert (shown["engine"], shown["topics"], shown["complete"]) == ("stod", K, True)
    assert shown["settings"]["alpha0"] == 1.5


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stod-restarts", "0"), "restarts is 0"),
        (("--topics", "1000"), "1,000"),
        (("--rectify", "none"), "rectify belongs to engine lr-jsmf"),
        (("--engine", "lr-jsmf", "--stod-refine", "als"), "refine belongs to engine stod"),
        (("--partitions", "1990"), "--partition-by"),
    ],
)
def test_errors_are_one_line(
    options: tuple[str, ...], said: str, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    outcome = invoke("infer", plain, tmp_path / "model", "--topics", K, "--engine", "stod", *options)
    refused(outcome, 2, said)
    assert not (tmp_path / "model").exists()


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


@pytest.mark.parametrize("alpha0", ["0", "nan", "1001", "little"])
def test_an_alpha0_out_of_range_is_refused_before_any_work(
    alpha0: str, tmp_path: Path, invoke: Command
) -> None:
    corpus = write_corpus(tmp_path / "corpus", Law().documents(np.full(50, 60)))
    fit = ("fit", corpus, tmp_path / "m", "--topics", 2, "--engine", "stod", "--stod-alpha0", alpha0)
    refused(invoke(*fit), 2, "alpha0 is ", alpha0)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus"}
    value = alpha0 if alpha0 == "little" else float(alpha0)
    with pytest.raises(ValueError, match="alpha0 is "):
        STOD(2, alpha0=value, scratch=tmp_path / "not-even-looked-at").fit(corpus)
