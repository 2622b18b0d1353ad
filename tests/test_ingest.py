"""Ingest compared with a slow count of the same texts: documents, words, what is dropped, and what changes no byte."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import streaming_jsmf as sj
from streaming_jsmf.config import Curation, IngestRequest
from streaming_jsmf.corpus import Corpus, curation, open_corpus, ranges, totals
from streaming_jsmf.corpus.format import read_manifest, verify_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import first_pass, job, repeats, steps
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers.record_files import TextSource
from streaming_jsmf.ingestion.tokens.stop_words import load_stop_words
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.jobs.events import WHAT, StageStarted, what
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.simulation import simulate_lda
from tests.cases import first_cases
from tests.corpora import bags_of, corpus_bytes, file_bytes, rows_of, write_texts
from tests.outcomes import Command, refused
from tests.readers import words_of

#: Ids that must be good.
BY_ID = {"id": "id"}
#: Keeps all that can be kept.
LOOSE: Mapping[str, Any] = {"stop_words": "none", "min_distinct_words": 0, "min_tokens": 0}
SUFFIXES = (".jsonl", ".csv", ".parquet")

Bag = Mapping[str, int]


@dataclass(frozen=True)
class Reference:
    """Documents kept, by id, and the words of the vocabulary."""

    kept: Mapping[Any, Bag]
    words: list[str]


def reference(bags: Mapping[Any, Bag], rules: Curation, stop: frozenset[str] = frozenset()) -> Reference:
    """The same curation over dictionaries; of equal documents the first in ``bags`` stays."""
    tf = sum((Counter(bag) for bag in bags.values()), Counter())
    df = Counter(word for bag in bags.values() for word in bag)

    def share(limit: float | None, whole: Any) -> float:
        # Not in floats: 7 % of 100 documents are 7.
        return math.inf if limit is None else limit if limit >= 1 else whole(round(limit * len(bags), 9))

    low = share(rules.min_document_frequency, math.ceil)
    high = share(rules.max_document_frequency, math.floor)
    chosen = [w for w in sorted(tf) if not {w, *w.split(" ")} & stop and len(w) >= rules.min_word_length]
    chosen = [w for w in chosen if low <= df[w] <= high]
    score = {w: tf[w] * math.log(len(bags) // df[w]) for w in chosen}
    best = set(sorted(chosen, key=lambda w: (-score[w], w))[: rules.vocabulary_size])
    first: dict[frozenset[tuple[str, int]], Any] = {}
    if rules.duplicates == "drop":
        bags = {i: b for i, b in bags.items() if not b or first.setdefault(frozenset(b.items()), i) == i}
    pruned = {i: {w: c for w, c in bag.items() if w in best} for i, bag in bags.items()}
    enough = (rules.min_distinct_words, rules.min_tokens)
    kept = {i: b for i, b in pruned.items() if len(b) >= enough[0] and sum(b.values()) >= enough[1]}
    return Reference(kept, [w for w in sorted(best) if any(w in bag for bag in kept.values())])


def quarantined(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path / "quarantine.parquet").to_pylist()


ALONE = Execution("synchronous")


def make(
    source: Path, target: Path, rules: Mapping[str, Any] = LOOSE, scheduler: Execution = ALONE, **more: Any
) -> Corpus:
    return ingest(
        source,
        target,
        IngestRequest(curation=rules, **{"preset": "papers", "max_dropped": 1, **more}),
        scheduler,
    )


def require_equal(corpus: Corpus, expected: Reference) -> None:
    """Words in order, their counts, and the documents."""
    vocabulary = corpus.vocabulary()
    assert list(vocabulary.words) == expected.words
    assert bags_of(corpus) == expected.kept
    bags = expected.kept.values()
    assert vocabulary.document_frequency.tolist() == [sum(w in b for b in bags) for w in expected.words]
    assert vocabulary.term_count.tolist() == [sum(b.get(w, 0) for b in bags) for w in expected.words]


def require_sums(path: Path) -> None:
    """What was read is what was kept and what was dropped, in tokens and documents."""
    manifest = read_manifest(path)
    said, dropped = manifest.settings, manifest.dropped
    assert said["tokens_read"] == manifest.totals.tokens + sum(step.tokens for step in dropped)
    assert said["documents_read"] == manifest.totals.documents + sum(step.documents for step in dropped)


# -- any documents, in three formats ----------------------------------------------------------------------------------

LETTERS = "aAbBcÉéñдДяλकि漢字한ع1٣ \t.,;'\"-_\n\u00a0\u2028🙂\u0301"
ANY = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"), max_size=8)


@dataclass(frozen=True)
class Record:
    """A record of a source; ``fault`` is empty for a good one."""

    text: str
    key: str
    note: str
    fault: str = ""


NO_TEXTS = ('{"text": 5, "id": "x"}', '{"text": "t", "id": null}')
FAULTS = {
    ".jsonl": ("{", "[1]", *NO_TEXTS, "\udcff"),
    ".csv": ("lonely", "a,b,c,d", "t,,n", "\udcff,k,n", 'te"xt,"k"x,n'),
    ".parquet": ("id is null", "text holds bytes that are not UTF-8"),
}


def write_records(path: Path, records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    """Write a file; return the rows of the bad records with their bytes, or None where the reader chooses the bytes."""
    if path.suffix == ".parquet":
        return write_parquet(path, records)
    bad, lines = [], 0
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        if path.suffix == ".csv":
            file.write("text,id,note\n")
            lines = 1
        for record in records:
            whole = record.fault or as_line(record, path.suffix)
            file.write(whole + "\n")
            lines += whole.count("\n") + 1
            if record.fault:
                held = record.fault.encode("utf-8", "surrogateescape")
                bad.append((lines - 1, held if path.suffix == ".jsonl" else None))
    return bad


def as_line(record: Record, suffix: str) -> str:
    values = {"text": record.text, "id": record.key, "note": record.note}
    if suffix == ".jsonl":
        return json.dumps(values, ensure_ascii=False)
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="").writerow(values.values())
    return line.getvalue()


def write_parquet(path: Path, records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    rows: list[dict[str, bytes | None]] = []
    for record in records:
        rows.append({"text": record.text.encode(), "id": record.key.encode(), "note": record.note.encode()})
        if record.fault.endswith("null"):
            rows[-1][record.fault.split()[0]] = None
        elif record.fault:
            rows[-1]["text"] = b"caf\xe9"
    # Invalid UTF-8 in string columns, as some writers produce it.
    arrays = {name: pa.array([row[name] for row in rows], pa.binary()) for name in ("text", "id", "note")}
    strings = [pa.Array.from_buffers(pa.string(), len(a), a.buffers(), a.null_count) for a in arrays.values()]
    pq.write_table(pa.table(dict(zip(arrays, strings, strict=True))), path, row_group_size=3)
    return [(row, None) for row, record in enumerate(records) if record.fault]


@st.composite
def sources(draw: st.DrawFn, suffix: str) -> list[list[Record]]:
    """Files of records; ids differ."""
    texts = draw(st.lists(st.text(st.sampled_from(LETTERS), max_size=20), min_size=2, max_size=14))
    good = [Record(text, f"{i}{draw(ANY)}", draw(ANY)) for i, text in enumerate(texts)]
    faults = draw(st.lists(st.sampled_from(FAULTS[suffix]), max_size=4))
    records = draw(st.permutations([*good, *(Record("t", "k", "n", fault) for fault in faults)]))
    cut = draw(st.integers(1, len(records) - 1))
    return [records[:cut], records[cut:]]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=8)
@given(data=st.data())
def test_any_documents_equal_the_reference(
    suffix: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = data.draw(sources(suffix))
    folder = tmp_path_factory.mktemp("any")
    (folder / "in").mkdir()
    paths = [folder / "in" / f"{number}{suffix}" for number in range(len(files))]
    pairs = zip(paths, files, strict=True)
    bad = [(str(path), *place) for path, records in pairs for place in write_records(path, records)]
    good = [record for records in files for record in records if not record.fault]
    bags = {record.key: Counter(words_of(record.text)) for record in good}
    arguments = {"reader": "text", "options": BY_ID, "on_bad_record": "quarantine"}
    # A file of JSON without one good line may be a damaged document, which is bad as a whole.
    judged = files if suffix == ".jsonl" else files[:1]
    columns = all(any(not record.fault for record in records) for records in judged)
    assume(columns and any(bags.values()))  # others have tests of their own
    corpus = make(folder / "in", folder / "out", **arguments)
    require_equal(corpus, reference(bags, Curation(**LOOSE)))
    rows = rows_of(corpus)
    assert [(row["document_id"], row["note"]) for row in rows] == [(r.key, r.note) for r in good]
    require_sums(folder / "out")
    found = quarantined(folder / "out") if bad else []
    assert [(row["file"], row["row"]) for row in found] == [(path, row) for path, row, _ in bad]
    assert all(held in (None, row["record"]) for row, (_, _, held) in zip(found, bad, strict=True))
    assert bad or not (folder / "out" / "quarantine.parquet").exists()


# -- a larger sample, shuffled and on other schedulers ----------------------------------------------------------------

STEMS = ("river", "fleuve", "река", "नदी", "河", "강", "نهر", "río", "ποτάμι", "tree", "árbol", "дерево")


def sample(n_documents: int, seed: int = 5) -> dict[str, str]:
    """Texts by id: words of several scripts with a long tail, some documents twice, some empty."""
    rng = random.Random(seed)
    names = [f"{stem}{'' if i < 3 else i}" for i in range(40) for stem in STEMS]
    weights = [1 / (1 + i) for i in range(len(names))]
    texts = [" ".join(rng.choices(names, weights, k=rng.randrange(40))) for _ in range(n_documents)]
    texts = [texts[i // 2] if i % 11 == 1 else text for i, text in enumerate(texts)]
    return {f"doc-{i:04d}": text for i, text in enumerate(texts)}


def write_sample(folder: Path, texts: Mapping[str, str], names: Sequence[str]) -> Path:
    """The texts over several files of JSON lines, in their order."""
    folder.mkdir()
    items = list(texts.items())
    size = -(-len(items) // len(names))
    for number, name in enumerate(names):
        part = items[number * size : (number + 1) * size]
        lines = [json.dumps({"id": key, "text": text, "length": len(text)}) for key, text in part]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of units for each file."""
    monkeypatch.setattr(job, "GROUP_BYTES", (1, 1))


STRICT: Mapping[str, Any] = {
    "stop_words": "none",
    "vocabulary_size": 200,
    "min_document_frequency": 2,
    "max_document_frequency": 0.5,
    "min_distinct_words": 3,
    "min_tokens": 5,
}


@pytest.mark.usefixtures("many_groups")
def test_a_sample_equals_the_reference(tmp_path: Path) -> None:
    texts = sample(400)
    corpus = make(write_sample(tmp_path / "in", texts, "abcde"), tmp_path / "out", STRICT)
    bags = {key: Counter(words_of(text)) for key, text in texts.items()}
    require_equal(corpus, reference(bags, Curation(**STRICT)))
    assert len(corpus.shards) == 5
    assert [row["length"] for row in rows_of(corpus)] == [len(texts[key]) for key in bags_of(corpus)]
    verify_corpus(corpus)
    require_sums(tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("scheduler", "workers"), [("threads", 3), pytest.param("processes", 2, marks=pytest.mark.slow)]
)
def test_the_scheduler_changes_no_byte(scheduler: str, workers: int, tmp_path: Path) -> None:
    source = write_sample(tmp_path / "in", sample(150), "abcde")
    with (source / "c.jsonl").open("a") as file:
        file.write('no JSON\n{"id": "doc-0001", "text": "an id again"}\n')
    rules = {**STRICT, "duplicates": "drop"}
    make(source, tmp_path / "out", rules, on_bad_record="quarantine")
    other = tmp_path / "other"
    make(source, other, rules, Execution(scheduler, workers), on_bad_record="quarantine")
    assert file_bytes(tmp_path / "out") == file_bytes(other)


@pytest.mark.parametrize("ends_early", [False, True])
def test_threads_of_a_task_change_no_byte(
    ends_early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.sources.protocol.limits.BATCH_BYTES", 1000)
    lines = [json.dumps({"id": key, "text": text}) for key, text in sample(150).items()]
    for i in (0, 13, 14, 140, 149):
        lines[i] = f"bad {i}"
    packed = gzip.compress("\n".join(lines).encode())
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(packed[:-40] if ends_early else packed)
    readers = set()
    plain = Tokenizer.__call__

    def told(self: Tokenizer, texts: Any) -> Any:
        readers.add(threading.current_thread().name)
        return plain(self, texts)

    monkeypatch.setattr(Tokenizer, "__call__", told)
    rules = {**STRICT, "min_document_frequency": 1}
    make(source, tmp_path / "one", rules, Execution("threads", 1), on_bad_record="quarantine")
    assert len(readers) == 1
    make(source, tmp_path / "many", rules, Execution("threads", 3), on_bad_record="quarantine")
    assert len(readers) > 2
    assert file_bytes(tmp_path / "many") == file_bytes(tmp_path / "one")
    assert len(quarantined(tmp_path / "many")) >= 3 + ends_early
    messages = set()
    for workers in (1, 3):
        with pytest.raises(InputError) as error:
            make(source, tmp_path / "fails", rules, Execution("threads", workers))
        messages.add(str(error.value))
    assert len(messages) == 1


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("scheduler", [Execution("synchronous"), Execution("threads", 3)])
def test_shuffled_shards_are_the_same_corpus(scheduler: Execution, tmp_path: Path) -> None:
    texts = sample(200)
    rules = {**STRICT, "duplicates": "drop"}
    plain = make(write_sample(tmp_path / "a", texts, "abcd"), tmp_path / "out", rules)
    items = list(texts.items())
    random.Random(1).shuffle(items)
    shuffled = make(write_sample(tmp_path / "b", dict(items), "xbzac"), tmp_path / "again", rules, scheduler)
    assert bags_of(shuffled) == bags_of(plain)
    assert list(bags_of(shuffled)) != list(bags_of(plain))
    vocabularies = [(tmp_path / name / "vocabulary.parquet").read_bytes() for name in ("out", "again")]
    assert vocabularies[0] == vocabularies[1]
    said = [read_manifest(tmp_path / name) for name in ("out", "again")]
    assert said[0].dropped == said[1].dropped
    assert said[0].settings == said[1].settings
    assert said[0].settings["duplicate_documents"] > 5


BOUNDS = (
    (totals, "MERGE_ROWS", 7),
    (ranges, "RANGE_BYTES", 300),
    (curation, "_SLACK", 0),
)


def test_every_stage_says_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars and lines show no names of stages, of which a large corpus has more than a small one."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 300)
    started: set[str] = set()

    def listener(event: Any) -> None:
        if isinstance(event, StageStarted):
            started.add(event.stage)

    pairs = {"one": "red ships sail home", "two": "blue cars drive away"}
    rows = [{"key": f"d{n}", "text": " ".join([*pairs.values()] * (1 + n % 3)) + f" w{n}"} for n in range(60)]
    options = {"id": "key", "phrases": 0.3, "stemmer": "english", "max_df": 1.0, "duplicates": "drop"}
    pytest.importorskip("snowballstemmer")
    sj.ingest(rows, tmp_path / "c", listener=listener, **options)
    (tmp_path / "t.csv").write_text(
        "document,word,count\n" + "".join(f"d{n % 9},w{n},1\n" for n in range(99))
    )
    sj.ingest(tmp_path / "t.csv", tmp_path / "t", reader="triples", listener=listener)
    simulate_lda(tmp_path / "s", n_documents=40, n_words=30, n_topics=2, listener=listener)
    sj.scan(tmp_path / "s", tmp_path / "m", max_topics=2, third_moment=True, listener=listener)
    assert {"frequent", "identities", "contents", "words", "forms", "scatter", "write", "sums"} <= started
    assert not {stage for stage in started if what(stage) == stage}


def test_stages_are_told_apart() -> None:
    """Tables of ``info`` and of the report have a row for each."""
    assert len({what(stage) for stage in WHAT if stage != "step"}) == len(WHAT) - 1


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    "rules",
    [
        STRICT,
        pytest.param({**LOOSE, "duplicates": "drop"}, marks=pytest.mark.slow),
        pytest.param({**LOOSE, "vocabulary_size": 20}, marks=pytest.mark.slow),
    ],
)
def test_little_memory_changes_no_byte(
    rules: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_sample(tmp_path / "in", sample(15), "abc")
    make(source, tmp_path / "out", rules)
    for module, name, value in BOUNDS:
        monkeypatch.setattr(module, name, value)
        make(source, tmp_path / name, rules)
        assert file_bytes(tmp_path / "out") == file_bytes(tmp_path / name)


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("range_bytes", "runs", "tasks", "groups"),
    first_cases([(2500, 5, 1, 2), (9000, 2, 9, 1), (1000, 1, 1, 9)], 2),
)
def test_no_number_of_ranges_changes_a_byte(
    range_bytes: int, runs: int, tasks: int, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids come again in the same file and in later ones, and texts under other ids."""
    source = write_sample(tmp_path / "in", sample(60), "abcdef")
    for name, other in zip("bcdf", "aabe", strict=True):
        lines = (source / f"{other}.jsonl").read_text().splitlines(keepends=True)
        with (source / f"{name}.jsonl").open("a") as file:
            file.writelines([*lines[::3], lines[0]])
    given = ({**LOOSE, "duplicates": "drop"}, ALONE)
    more = {"on_bad_record": "quarantine", "options": {"id": "id"}}
    make(source, tmp_path / "single", *given, **more)
    steps = {step.step for step in read_manifest(tmp_path / "single").dropped if step.documents}
    assert {"duplicates", "replaced", "repeated_id"} <= steps, steps
    changes = [("RANGE_BYTES", range_bytes), ("_RUNS_PER_FILE", runs), ("_FEWEST_TASKS", tasks)]
    for module, name, value in (*((ranges, *change) for change in changes), (repeats, "_GROUPS", groups)):
        monkeypatch.setattr(module, name, value)
    make(source, tmp_path / "several", *given, **more)
    assert file_bytes(tmp_path / "single") == file_bytes(tmp_path / "several")


def test_the_memory_of_a_range_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_sample(tmp_path / "in", sample(30), "a")
    monkeypatch.setattr(steps, "RANGE_BYTES", 5 << 30)
    with pytest.raises(InputError, match=r"the ingest needs about 5\.\d+ GiB and memory allows 4\.00 GiB"):
        make(source, tmp_path / "out", scheduler=Execution("synchronous", memory=4 << 30))


def test_small_tasks_change_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_sample(tmp_path / "in", sample(120), "abc")
    rules = {**STRICT, "duplicates": "drop"}
    plain = make(source, tmp_path / "out", rules)
    monkeypatch.setattr(job, "GROUP_BYTES", (1, 1))
    monkeypatch.setattr(first_pass, "TOKENS_PER_SHARD", 50)
    monkeypatch.setattr("streaming_jsmf.ingestion.sources.protocol.limits.BATCH_BYTES", 1000)
    pieces = make(source, tmp_path / "pieces", rules, tokens_per_shard=50)
    assert len(pieces.shards) > 20
    assert rows_of(pieces) == rows_of(plain)
    assert pieces.vocabulary_sha256 == plain.vocabulary_sha256
    assert read_manifest(tmp_path / "pieces").dropped == read_manifest(tmp_path / "out").dropped
    verify_corpus(pieces)


# -- curation ---------------------------------------------------------------------------------------------------------


def dropped(path: Path) -> dict[str, tuple[int, int, float]]:
    """Words, documents and tokens by step."""
    return {step.step: (step.words, step.documents, step.tokens) for step in read_manifest(path).dropped}


RULES = st.fixed_dictionaries(
    {
        "stop_words": st.sampled_from(["none", "english"]),
        "min_word_length": st.integers(1, 4),
        "min_document_frequency": st.sampled_from([1, 2, 0.07, 0.14, 0.3]),
        "max_document_frequency": st.sampled_from([None, 3, 0.28, 0.29, 0.55, 0.57, 0.999]),
        "vocabulary_size": st.none() | st.integers(1, 12),
        "duplicates": st.sampled_from(["keep", "drop"]),
        "min_distinct_words": st.integers(0, 3),
        "min_tokens": st.integers(0, 4),
    }
)
WORDS = ("the", "of", "a", "ант", "bee", "क", "कवि", "forest", "木", "eel", "and")


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=30),
    rules=RULES,
    ngrams=st.integers(1, 2),
)
def test_every_rule_equals_the_reference(
    texts: list[str], rules: dict[str, Any], ngrams: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rules")
    # Without ids the copy that stays is the first; with ids see below.
    lines = "".join(f"{json.dumps({'text': text})}\n" for text in texts)
    (folder / "in.jsonl").write_text(lines)
    words = [text.split() for text in texts]
    if ngrams == 2:
        words = [[*w, *(" ".join(pair) for pair in pairwise(w))] for w in words]
    bags = {i: Counter(w) for i, w in enumerate(words)}
    stop = load_stop_words(rules["stop_words"])
    assert stop.isdisjoint(WORDS) or {"the", "of", "a", "and"} <= stop
    expected = reference(bags, Curation(**rules), stop)
    if not expected.words:
        with pytest.raises(InputError, match=r"left after the curation|empty corpus"):
            make(folder / "in.jsonl", folder / "out", rules, options={"ngrams": ngrams})
        assert [path.name for path in folder.iterdir()] == ["in.jsonl"]
        return
    require_equal(make(folder / "in.jsonl", folder / "out", rules, options={"ngrams": ngrams}), expected)
    require_sums(folder / "out")
    listed = sum(words for words, _, _ in dropped(folder / "out").values())
    assert listed + len(expected.words) == len({word for bag in bags.values() for word in bag})


def test_shares_are_what_was_written(tmp_path: Path) -> None:
    # 0.07 * 100 is above 7 in floats, and 0.29 * 100 below 29.
    limits = {"few": 7, "less": 6, "many": 29, "more": 30}
    texts = {i: " ".join(word for word, limit in limits.items() if i < limit) for i in range(100)}
    source = write_texts(tmp_path / "in.jsonl", texts)
    rules = {**LOOSE, "min_document_frequency": 0.07, "max_document_frequency": 0.29}
    assert make(source, tmp_path / "out", rules).vocabulary().words == ("few", "many")
    reasons = {step.step: step.reason for step in read_manifest(tmp_path / "out").dropped}
    assert reasons["min_document_frequency"] == "in fewer than 7 documents"
    assert reasons["max_document_frequency"] == "in more than 29 documents"


def test_each_step_reports_what_it_removed(tmp_path: Path) -> None:
    texts = {
        "a": "the cat sat, the cat ran",
        "b": "ran the cat the sat cat",  # the words of a
        "c": "dog dog dog dog dog xy",
        "d": "cat sat",
        "e": "cat ran sat owl",
        "a again": "",
    }
    lines = [json.dumps({"id": key[0], "text": text}) for key, text in texts.items()]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "no JSON", '{"id": "f", "text": ""}']))
    rules = {"min_word_length": 3, "duplicates": "drop", "min_distinct_words": 2, "min_tokens": 3}
    corpus = make(tmp_path / "in.jsonl", tmp_path / "out", rules, on_bad_record="quarantine", options=BY_ID)
    assert dropped(tmp_path / "out") == {
        "stop_words": (1, 0, 4),
        "min_word_length": (1, 0, 1),
        "min_document_frequency": (0, 0, 0),
        "bad_records": (0, 1, 0),
        "repeated_id": (0, 1, 0),
        "duplicates": (0, 1, 4),
        "min_distinct_words": (0, 2, 5),
        "min_tokens": (0, 1, 2),
        "unused_words": (1, 0, 0),  # dog was in c alone
    }
    assert corpus.vocabulary().words == ("cat", "owl", "ran", "sat")
    assert [row["ids"] for row in rows_of(corpus)][-1] == [0, 1, 2, 3]
    assert read_manifest(tmp_path / "out").settings["duplicate_documents"] == 1
    assert {*bags_of(corpus)} in ({"a", "e"}, {"b", "e"})
    require_sums(tmp_path / "out")
    verify_corpus(corpus)


@pytest.mark.parametrize("ids", [{"x": 7, "y": -3, "z": 2**62}, {"x": "zz", "y": "a", "z": "m"}])
def test_which_copy_stays_does_not_depend_on_the_order(ids: Mapping[str, Any], tmp_path: Path) -> None:
    kept = []
    for number, order in enumerate(("xyz", "zyx", "yzx")):
        folder = tmp_path / str(number)
        for name, key in enumerate(order):
            other = f"{key}!" if ids["x"] == "zz" else name
            write_texts(folder / "in" / f"{name}.jsonl", {ids[key]: "one two two three", other: key})
        corpus = make(folder / "in", folder / "out", {**LOOSE, "duplicates": "drop"})
        kept.append({key for key, bag in bags_of(corpus).items() if "two" in bag})
        assert dropped(folder / "out")["duplicates"] == (0, 2, 8)
        assert make(folder / "in", folder / "keep").n_documents == 6
        assert read_manifest(folder / "keep").settings["duplicate_documents"] == 2
    assert kept[0] == kept[1] == kept[2]
    assert len(kept[0]) == 1
    if ids["x"] == 7:
        assert kept[0] == {-3}


def test_empty_documents_can_be_kept_and_are_not_duplicates(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in.jsonl", {1: "", 2: "the", 3: "sun sun", 4: "...", 5: "the"})
    corpus = make(source, tmp_path / "out", {**LOOSE, "stop_words": "english", "duplicates": "drop"})
    # 2 and 5 have the same words, though none of them is kept.
    assert bags_of(corpus) == {1: {}, 2: {}, 3: {"sun": 2}, 4: {}}
    assert dropped(tmp_path / "out") == {
        "stop_words": (1, 0, 2),
        "min_document_frequency": (0, 0, 0),
        "duplicates": (0, 1, 0),
        "unused_words": (0, 0, 0),
    }


def test_runs_with_a_stop_word_go(tmp_path: Path) -> None:
    (tmp_path / "stop.txt").write_text("# mine\nOf\nनहीं\n")
    source = write_texts(tmp_path / "in.jsonl", {1: "house of cards", 2: "often नहीं да house cards"})
    rules = {**LOOSE, "stop_words": str(tmp_path / "stop.txt")}
    corpus = make(source, tmp_path / "out", rules, options={"ngrams": "2"})
    words = ["cards", "house", "house cards", "often", "да", "да house"]
    assert list(corpus.vocabulary().words) == words
    assert dropped(tmp_path / "out")["stop_words"] == (6, 0, 6)
    assert read_manifest(tmp_path / "out").settings["stop_words"] == "file"


def test_words_that_only_left_documents_had_leave_no_gap(tmp_path: Path) -> None:
    texts = {i: "ash birch cedar" if i % 2 else f"only{i} ash" for i in range(20)}
    rules = {**LOOSE, "min_distinct_words": 3}
    corpus = make(write_texts(tmp_path / "in.jsonl", texts), tmp_path / "out", rules, tokens_per_shard=9)
    assert corpus.vocabulary().words == ("ash", "birch", "cedar")
    assert [row["ids"] for row in rows_of(corpus)] == [[0, 1, 2]] * 10
    assert dropped(tmp_path / "out")["unused_words"] == (10, 0, 0)
    assert [shard.rows for shard in corpus.shards] == [3, 3, 3, 1]
    verify_corpus(corpus)
    # The same documents from the start give the same shards.
    plain = {i: text for i, text in texts.items() if i % 2}
    again = make(write_texts(tmp_path / "again.jsonl", plain), tmp_path / "again", rules, tokens_per_shard=9)
    assert again.fingerprint == corpus.fingerprint


# -- ids that repeat, and bad records ---------------------------------------------------------------------------------

REPEATED = (
    '{"id": "a", "text": "ant bee cat"}',
    '{"id": "b", "text": "dog eel"}',
    '{"id": "a", "text": "fox gnu fox the"}',
    '{"id": "c", "text": "fox fox gnu the"}',
    '{"id": "a", "text": ""}',
)


@pytest.mark.usefixtures("many_groups")
def test_a_repeated_id_is_quarantined_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, lines in {"x": ['{"id": "d", "text": "owl"}'], "y": ["{", *REPEATED]}.items():
        (tmp_path / "in" / f"{name}.jsonl").write_text("\n".join(lines))
    rules = {**LOOSE, "stop_words": "english", "duplicates": "drop"}
    corpus = make(tmp_path / "in", tmp_path / "out", rules, on_bad_record="quarantine", options=BY_ID)
    # c has the words of the second a, which is not there any more.
    assert list(bags_of(corpus)) == ["d", "a", "b", "c"]
    found = [(row["row"], row["record"]) for row in quarantined(tmp_path / "out")]
    assert found[0] == (0, b"{")
    records = [(row, json.loads(record)) for row, record in found[1:]]
    assert records == [
        (3, {"document_id": "a", "words": {"fox": 2, "gnu": 1, "the": 1}}),
        (5, {"document_id": "a", "words": {}}),
    ]
    assert dropped(tmp_path / "out")["repeated_id"][1] == 2
    require_sums(tmp_path / "out")


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("scheduler", [ALONE, Execution("threads", 3)])
def test_a_document_replaces_those_of_its_id_in_earlier_files(scheduler: Execution, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, lines in {"x": REPEATED[:2], "y": REPEATED[2:4], "z": REPEATED[4:]}.items():
        (tmp_path / "in" / f"{name}.jsonl").write_text("\n".join(lines))
    rules = {**LOOSE, "min_tokens": 1, "duplicates": "drop"}
    corpus = make(tmp_path / "in", tmp_path / "out", rules, scheduler, options=BY_ID)
    # The last a has no word.
    assert list(bags_of(corpus)) == ["b", "c"]
    found = dropped(tmp_path / "out")
    assert {step: found[step][1:] for step in ("replaced", "duplicates", "min_tokens")} == {
        "replaced": (2, 7),
        "duplicates": (0, 0),
        "min_tokens": (1, 0),
    }
    require_sums(tmp_path / "out")
    with pytest.raises(InputError, match=r"2 whose id is that of a later file .*max_dropped='100%'"):
        make(tmp_path / "in", tmp_path / "other", rules, options=BY_ID, max_dropped=0.3)


@pytest.mark.usefixtures("many_groups")
def test_rows_of_the_quarantine_count_from_the_start_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.sources.protocol.limits.UNIT_BYTES", 100)
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": f"a{i}", "text": f"word{i} is here"}) for i in range(40)]
    bad = (0, 13, 14, 39)
    for i in bad:
        lines[i] = f"bad {i}"
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    ids = [None if i in bad else f"b{i}" for i in range(40)]
    table = pa.table({"id": ids, "text": ["some text"] * 40})
    pq.write_table(table, tmp_path / "in" / "b.parquet", row_group_size=3)
    corpus = make(tmp_path / "in", tmp_path / "out", reader="text", options=BY_ID, on_bad_record="quarantine")
    table = pq.read_table(tmp_path / "out" / "quarantine.parquet")
    kinds = [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
    assert table.schema.equals(pa.schema(kinds))
    assert table.column("row").to_pylist() == [*bad, *bad]
    assert table.column("record").to_pylist()[:4] == [b"bad 0", b"bad 13", b"bad 14", b"bad 39"]
    assert table.column("reason").to_pylist()[4:] == ["id is null"] * 4
    names = [str(tmp_path / "in" / name) for name in ("a.jsonl", "b.parquet") for _ in bad]
    assert table.column("file").to_pylist() == names
    assert dropped(tmp_path / "out")["bad_records"] == (0, 8, 0)
    assert open_corpus(tmp_path / "out").fingerprint == corpus.fingerprint
    assert len(corpus.shards) > 10
    good = [f"{s}{i}" for s in "ab" for i in range(40) if i not in bad]
    assert [row["document_id"] for row in rows_of(corpus)] == good


PLACES: list[bool] = []


def slowly(text: str) -> list[str]:
    """A custom tokenizer that records whether the directory of its task still exists."""
    time.sleep(0.2)
    PLACES.append(Path(text).is_dir())
    return ["word"]


@pytest.mark.usefixtures("many_groups")
def test_an_error_waits_for_the_tasks_that_still_run(tmp_path: Path) -> None:
    PLACES.clear()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("bad")
    for name in "123":
        write_texts(tmp_path / "in" / f"{name}.jsonl", {name: str(tmp_path / "out.partial")})
    tokenizer = f"{__name__}:{slowly.__name__}"
    with pytest.raises(InputError, match=r"0\.jsonl, line 1"):
        make(
            tmp_path / "in",
            tmp_path / "out",
            scheduler=Execution("threads", 4),
            options={"tokenizer": tokenizer},
        )
    assert PLACES
    assert all(PLACES)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# -- documents that are spread over the files -------------------------------------------------------------------------


@pytest.mark.usefixtures("many_groups")
def test_rows_in_any_order_and_files_give_the_same_bytes(tmp_path: Path) -> None:
    rng = random.Random(3)
    bags = {f"d{i}": Counter(rng.choices(STEMS, k=rng.randrange(1, 12))) for i in range(80)}
    rows = [(key, word, count) for key, bag in bags.items() for word, count in bag.items()]
    n_pairs = len(rows)
    # A pair may come in parts, which are added.
    rows += [(key, word, 1) for key, word, n in rows if n > 1]
    rows = [(key, word, n - 1 if i < n_pairs and n > 1 else n) for i, (key, word, n) in enumerate(rows)]
    for number, files in enumerate(("ab", "xyz", "q")):
        folder = tmp_path / str(number)
        folder.mkdir()
        rng.shuffle(rows)
        for i, name in enumerate(files):
            lines = [f"{key},{word},{n}\n" for key, word, n in rows[i :: len(files)]]
            (folder / f"{name}.csv").write_text("document,word,count\n" + "".join(lines))
    for number, scheduler in enumerate((ALONE, Execution("threads", 3), ALONE)):
        corpus = make(tmp_path / str(number), tmp_path / f"out{number}", scheduler=scheduler)
        require_equal(corpus, reference(bags, Curation(**LOOSE)))
        assert corpus_bytes(tmp_path / "out0") == corpus_bytes(tmp_path / f"out{number}")


# -- guessed ids ------------------------------------------------------------------------------------------------------


@pytest.fixture
def guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that a reader has only guessed."""
    monkeypatch.setattr(TextSource, "id_was_named", False, raising=False)
    monkeypatch.setattr(TextSource, "id_column", "id", raising=False)


@pytest.mark.usefixtures("guessed", "many_groups")
@pytest.mark.parametrize("kind", [int, str])
def test_guessed_ids_that_repeat_are_metadata(
    kind: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {i: f"ant {'bee' * (i % 3)}" for i in range(12)}
    for number in range(3):
        rows = [{"n": i, "id": kind(i // 2), "text": texts[i]} for i in range(4 * number, 4 * number + 4)]
        write_lines(tmp_path / "in" / f"{number}.jsonl", [json.dumps(row) for row in rows])
    with caplog.at_level("INFO"):
        corpus = make(tmp_path / "in", tmp_path / "out", {**LOOSE, "duplicates": "drop"})
    assert (
        "id: 6 values are repeated, so documents are numbered and the column is metadata; id=" in caplog.text
    )
    found = pq.read_table(tmp_path / "out" / "documents")
    assert found.column_names == ["ids", "counts", "document_id", "id", "n"]
    assert found.to_pydict() | {"ids": 0, "counts": 0} == {
        "ids": 0, "counts": 0, "document_id": [0, 1, 2], "id": [0, 0, 1], "n": [0, 1, 2],
    }  # fmt: skip
    assert corpus.n_documents == 3, "of equal documents the first of the source stays"


@pytest.mark.usefixtures("guessed")
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1.5, 2.5], "2 values are neither texts nor whole numbers"),
        ([1, None], "1 value is missing"),
        (["a", ""], "1 value is missing"),
    ],
)
def test_guessed_ids_that_cannot_be_ids_are_metadata(
    values: list[Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"id": values, "text": ["ant bee", "cat"]}), tmp_path / "in.parquet")
    with caplog.at_level("INFO"):
        corpus = make(tmp_path / "in.parquet", tmp_path / "out")
    assert f"id: {why}, so documents are numbered" in caplog.text
    assert list(bags_of(corpus)) == [0, 1]


# -- losses -----------------------------------------------------------------------------------------------------------


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    return path


@settings(max_examples=10)
@given(
    kinds=st.lists(
        st.sampled_from(["bad", "same", "empty", "one", "ant bee", "ant bee cat"]), min_size=1, max_size=25
    ),
    rules=st.fixed_dictionaries(
        {"duplicates": st.sampled_from(["keep", "drop"]), "min_distinct_words": st.integers(0, 3)}
    ),
    largest=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_read_is_kept_and_lost(
    kinds: list[str], rules: dict[str, Any], largest: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("losses")
    own = {"bad": "{", "same": '{"text": "dog eel fox"}', "empty": '{"text": ""}'}
    lines = [own.get(kind, json.dumps({"text": f"{kind} {i} eel"})) for i, kind in enumerate(kinds)]
    source = write_lines(folder / "in.jsonl", ['{"text": "dog eel fox"}', *lines])
    rules = {**LOOSE, "numbers": "drop", **rules}
    make(source, folder / "out", rules, on_bad_record="quarantine")
    require_sums(folder / "out")
    lost = dropped(folder / "out")
    assert read_manifest(folder / "out").settings["documents_read"] == len(lines) + 1
    number = lost.get("bad_records", (0, 0, 0))[1]
    if rules["min_distinct_words"] == 1:
        number += lost["min_distinct_words"][1]
    limited = {"on_bad_record": "quarantine", "max_dropped": largest}
    if number > largest * (len(lines) + 1):
        with pytest.raises(InputError, match="max_dropped="):
            make(source, folder / "other", rules, **limited)
        assert sorted(path.name for path in folder.iterdir()) == ["in.jsonl", "out"]
    else:
        assert file_bytes(folder / "out") == file_bytes(
            Path(make(source, folder / "other", rules, **limited).root)
        )


def test_large_losses_are_refused_or_the_last_line(tmp_path: Path, invoke: Command) -> None:
    words = [f"w{a}{b}" for a in "abcdefgh" for b in "klmnopqr"]
    good = [json.dumps({"text": " ".join(words[i % 9 :])}) for i in range(30)]
    source = write_lines(tmp_path / "in.jsonl", ["{"] * 31 + good)
    arguments = ("ingest", source, tmp_path / "c", "--max-df", "100%", "--stop-words", "none")
    arguments = (*arguments, "--on-bad-record", "quarantine")
    refused(
        invoke(*arguments).without_progress(),
        2,
        "would lack 31 of 61 documents (51%): 31 in quarantine.parquet",
        "the first is ",
        "in.jsonl, row 0 from 0: ",
        "--max-dropped 100%",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    said = invoke(*arguments, "--max-dropped", "60%").err
    assert said.count("85% of the documents are dropped") == 2, "where it occurs, and again at the end"
    last = said.splitlines()[-1]
    # Some texts are equal.
    assert last.startswith("85% of the documents are dropped: 31 in quarantine.parquet (")
    assert last.endswith(", 21 with the words of another (--duplicates keep)")
