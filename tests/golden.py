"""Compare what the program computes from fixed inputs with golden.json.

    python -m tests.golden                                print differences from golden.json
    python -m tests.golden --record                       write golden.json
    python -m tests.golden --record polish transform      update the cases whose names start with these words
    python -m tests.golden --file OLD.json [--record]     use another file

Bits are compared only on the recorded platform. To compare the bits of two versions on any machine, write a file with
the old one (``--file OLD.json --record``) and compare the new one with it (``--file OLD.json``). A processor with
AVX-512 can take the place of the recorded one with ``OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=znver3
NUMBA_CACHE_DIR=EMPTY NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR"``. Each case creates stores through the
command line in a temporary directory; ``observations`` defines what is compared.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import zarr
from threadpoolctl import threadpool_info

import streaming_jsmf as sj
from tests.observations import (
    Observed,
    arrays_of,
    bits,
    corpus_contents,
    differences,
    exact,
    model_contents,
    moments_contents,
    numbers,
    shares_contents,
)
from tests.outcomes import printed
from tests.readers import FORMATS, Document, Format, documents

RECORDED = Path(__file__).with_name("golden.json")
DATA = Path(__file__).with_name("data") / "golden"
FIRST, SECOND = DATA / "first", DATA / "second"
SCAN = ("--max-topics", "5", "--partition-nonzeros", "1000")
KEPT = (*SCAN, "--third-moment")
LARGER = ("--max-topics", "5", "--partition-nonzeros", "3000")
SAMPLED = (*LARGER, "--sample-share", "0.5")
CURATION = (
    "--preset",
    "papers",
    *("--stop-words", "none", "--min-document-frequency", "3", "--vocabulary-size", "18"),
    *("--duplicates", "drop", "--min-distinct-words", "3", "--min-tokens", "4", "--tokens-per-shard", "70"),
)


def platform() -> dict[str, Any]:
    """Versions and hardware that determine the last bits of floating-point numbers and the bytes of Parquet files."""
    import llvmlite.binding
    import numba
    import scipy.linalg  # noqa: F401  (scipy has its own BLAS, which is listed after import)

    blas = {
        f"{library['internal_api']} {library['version']} {library.get('architecture')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    packages = ("numpy", "scipy", "numba", "pyarrow", "zarr")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        **versions,
        "blas": sorted(blas),
        "processor": numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
    }


def command(*arguments: object, scheduler: str = "synchronous") -> str:
    """Run a command that must succeed, and return its output."""
    places = () if arguments[0] in ("infer", "info") else ("--scheduler", scheduler, "--workers", 2)
    return printed(*arguments, *places)


# Corpora


def ingested(kind: Format, codec: str, root: Path) -> Observed:
    """Ingest a format with all rules of curation."""
    source = kind.write(root / "in", documents(), codec)
    command("ingest", source, root / "out", *kind.arguments(), *CURATION)
    return corpus_contents(root / "out")


def _quarantined(root: Path) -> Observed:
    docs: list[Document] = documents()
    source = next(f for f in FORMATS if f.name == "text-json").write(root / "in", docs, ".gz", bad=True)
    command("ingest", source, root / "out", *CURATION, "--on-bad-record", "quarantine")
    return corpus_contents(root / "out")


TEXTS = {
    "by default": (),
    "with phrases": ("--excerpt", 0, "--phrases", 0.2, "--max-df", "100%"),
    "in another way": (
        "--excerpt",
        0,
        "--tokenizer",
        "sklearn",
        "--ngrams",
        2,
        "--stemmer",
        "english",
        "--min-df",
        20,
    ),
    "of given words": ("--excerpt", 0, "--stop-words", "none", "--vocabulary"),
}


def _of_texts(root: Path, options: Sequence[object]) -> Observed:
    """Ingest texts with the counts of ``FIRST``; every other text starts with mail headers."""
    counts, words = sj.corpus_to_matrix(FIRST)
    names = [f"{word[-2:]}{word}s".translate(str.maketrans("0123456789", "abcdefghij")) for word in words]
    lines = []
    for number, row in enumerate(counts):
        text = " ".join(
            names[i] for i, count in zip(row.indices, row.data, strict=True) for _ in range(int(count))
        )
        head = "From: nobody@example.org\nSubject: words\n\n" * (number % 2)
        lines.append(json.dumps({"text": head + text, "id": f"t{number}"}))
    (root / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "words.txt").write_text("\n".join(names[::2]) + "\n", encoding="utf-8")
    given = [root / "words.txt"] if "--vocabulary" in options else []
    command("ingest", root / "texts.jsonl", root / "out", *options, *given)
    return corpus_contents(root / "out")


def _simulated(root: Path) -> Observed:
    options = ("--documents", 300, "--vocabulary-size", 90, "--topics", 3, "--documents-per-shard", 110)
    command("simulate", root / "out", *options, "--mean-length", 30, "--separable", "--zipf", "0.8")
    found = corpus_contents(root / "out")
    return found | {
        f"truth/{n}": a for n, a in arrays_of(zarr.open_group(root / "out" / "truth.zarr", mode="r"))
    }


# Stores


class Stores:
    """Stores shared by several cases, each created once in a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: set[str] = set()

    def scanned(
        self, name: str, *options: object, corpus: Path = FIRST, scheduler: str = "synchronous"
    ) -> Path:
        store = self.root / name
        if name not in self._made:
            command("scan", corpus, store, *options, scheduler=scheduler)
            self._made.add(name)
        return store

    def kept(self) -> Path:
        return self.scanned("kept", *KEPT)

    def exact(self) -> Path:
        return self.scanned("exact", *SCAN, "--exact", "--third-moment")

    def grown(self, name: str, of: Path) -> Path:
        """A copy of a store that has followed its corpus, which has the shards of the second one, too."""
        return self._followed(name, of, self._corpus("both", SECOND))

    def shrunk(self, name: str, of: Path) -> Path:
        """A copy of a store that has followed its corpus, which lacks a shard."""
        corpus = self._corpus("part")
        (corpus / "part-00001.parquet").unlink(missing_ok=True)
        return self._followed(name, of, corpus)

    def _followed(self, name: str, of: Path, corpus: Path) -> Path:
        if name not in self._made:
            shutil.copytree(of, self.root / name)
        return self.scanned(name, "--follow", corpus=corpus)

    def _corpus(self, name: str, *others: Path) -> Path:
        place = self.root / name
        if not place.exists():
            shutil.copytree(FIRST, place)
            for other in others:
                for shard in other.glob("*.parquet"):
                    shutil.copy(shard, place / f"{other.name}-{shard.name}")
        return place

    def sample(self) -> Path:
        return self.scanned("sample", *SAMPLED, "--third-moment")

    def model(self, name: str, store: Path, *options: object) -> Path:
        if name not in self._made:
            command("infer", store, self.root / name, "--topics", 4, *options)
            self._made.add(name)
        return self.root / name

    def polished(self, name: str, model: Path, *options: object) -> Path:
        if name not in self._made:
            command("polish", model, FIRST, self.root / name, *options)
            self._made.add(name)
        return self.root / name


def _by_year(made: Stores) -> Path:
    return made.scanned("by-year", *SCAN, "--partition-by", "year")


def _third_moment_later(made: Stores) -> Path:
    made.scanned("later", *SCAN)
    command("scan", FIRST, made.root / "later", *SCAN, "--third-moment")
    return made.root / "later"


SCANS: dict[str, Callable[[Stores], Path]] = {
    "kept": Stores.kept,
    "plain": lambda made: made.scanned("plain", *SCAN),
    "weights by length": lambda made: made.scanned("length", *SCAN, "--document-weights", "length"),
    "uniform weights": lambda made: made.scanned(
        "uniform", *SCAN, "--document-weights", "uniform", "--seed", 3
    ),
    "halko": lambda made: made.scanned("halko", *SCAN, "--range", "halko"),
    "exact": Stores.exact,
    "by year": _by_year,
    "third moment later": _third_moment_later,
    "grown": lambda made: made.grown("grown", made.kept()),
    "shrunk": lambda made: made.shrunk("shrunk", made.kept()),
    "exact, grown": lambda made: made.grown("exact-grown", made.exact()),
    "halko, grown": lambda made: made.grown("halko-grown", SCANS["halko"](made)),
    "sample": Stores.sample,
    "sample, grown": lambda made: made.grown("sample-grown", made.sample()),
    "sample, shrunk": lambda made: made.shrunk("sample-shrunk", made.sample()),
}


MODELS: dict[str, Callable[[Stores], Path]] = {
    "lr-jsmf": lambda made: made.model("lr-jsmf", made.kept()),
    "soft cliques": lambda made: made.model("cliques", made.kept(), "--anchors", "soft-clique"),
    "alternating projections": lambda made: made.model("ap", made.exact(), "--rectify", "ap"),
    "of some years": lambda made: made.model("years", _by_year(made), "--partitions", "1990..1991"),
    "stod": lambda made: made.model("stod", made.kept(), "--engine", "stod"),
    "stod, alpha0 given": lambda made: made.model(
        "given-alpha0", made.kept(), "--engine", "stod", "--stod-alpha0", "1.2"
    ),
    "palm, refined": lambda made: made.model(
        "palm", made.kept(), "--rectify", "palm", "--correlations", "refined"
    ),
    "ipalm": lambda made: made.model("ipalm", made.kept(), "--rectify", "ipalm"),
    "not rectified, no guards": lambda made: made.model(
        *("none", made.kept(), "--rectify", "none", "--anchor-min-df", 0),
        *("--anchor-shrinkage", 0, "--anchor-row-sum", 0),
    ),
    "enn of the paper": lambda made: made.model(
        *("paper", made.kept(), "--acceleration", "none", "--missing-mass", "marginals"),
    ),
    "given anchors": lambda made: made.model("given", made.kept(), "--anchor-words", "word0010,word0030"),
    "of a sample": lambda made: made.model("sampled", made.sample()),
    "stod of a sample": lambda made: made.model(
        *("sampled-stod", made.sample(), "--engine", "stod", "--stod-alpha0", "0.7", "--stod-threshold", 0),
        *("--stod-restarts", 5, "--stod-iterations", 10, "--seed", 2),
    ),
    "stod, exact": lambda made: made.model("stod-exact", made.exact(), "--engine", "stod"),
}


POLISHED: dict[str, Callable[[Stores], Path]] = {
    "lr-jsmf": lambda made: made.polished("polished", MODELS["lr-jsmf"](made), "--steps", 8),
    "stod": lambda made: made.polished(
        *("polished-stod", MODELS["stod"](made), "--steps", 7),
        *("--rounds", 2, "--held-out", 0, "--seed", 5),
    ),
}

#: Options of ``transform`` by name of the result.
SHARES: dict[str, tuple[object, ...]] = {
    "shares.parquet": (),
    "shares.zarr": (),
    "directory": ("--top", 2),
    "top.zarr": ("--top", 2),
}


def transformed(made: Stores, name: str) -> Observed:
    """Topic shares of documents that the model was not fitted to, from the unpolished model."""
    out = made.root / name
    command("transform", MODELS["lr-jsmf"](made), SECOND, out, *SHARES[name])
    return shares_contents(out)


def evaluated(path: Path) -> Observed:
    printed = json.loads(command("evaluate", path, "--corpus", FIRST, "--json", "--replicas", 2))
    certificates = printed.pop("certificates", None)
    certificates.get("polish", {}).pop("start", None)  # a path
    # A residual is a difference of nearly equal numbers, so few digits agree across platforms.
    found: Observed = {"certificates": bits(certificates)}
    found["metrics"] = {"numbers": numbers(printed)}
    for name, counts in zarr.open_group(path / "evaluation", mode="r").groups():
        found |= {f"counts/{array_name}": value for array_name, value in arrays_of(counts)}
        found["name of the counts"] = exact(name)
    return found


# The table


@dataclass(frozen=True)
class Case:
    """A named function that creates observations in a new directory, using the shared stores."""

    name: str
    observe: Callable[[Path, Stores], Observed]


def cases() -> list[Case]:
    made = [Case(f"ingest {f.name}", lambda root, _, f=f: ingested(f, "", root)) for f in FORMATS]
    made.append(Case("ingest with a quarantine", lambda root, _: _quarantined(root)))
    for name, options in TEXTS.items():
        made.append(Case(f"ingest texts {name}", lambda root, _, o=options: _of_texts(root, o)))
    made.append(Case("simulate", lambda root, _: _simulated(root)))
    for name, make in SCANS.items():
        made.append(Case(f"scan {name}", lambda _, s, make=make: moments_contents(make(s))))
    for name, fit in MODELS.items():
        made.append(Case(f"infer {name}", lambda _, s, fit=fit: model_contents(fit(s))))
    for model in ("lr-jsmf", "stod"):
        made.append(Case(f"evaluate {model}", lambda _, s, m=model: evaluated(MODELS[m](s))))
    for name, polish in POLISHED.items():
        made.append(Case(f"polish {name}", lambda _, s, polish=polish: model_contents(polish(s))))
    made.append(Case("polish lr-jsmf, evaluated", lambda _, s: evaluated(POLISHED["lr-jsmf"](s))))
    for name in SHARES:
        made.append(Case(f"transform {name}", lambda _, s, n=name: transformed(s, n)))
    return made


@cache
def recorded(file: Path = RECORDED) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def observations(chosen: Callable[[str], bool]) -> dict[str, Observed]:
    with tempfile.TemporaryDirectory() as scratch:
        stores = Stores(Path(scratch))
        found = {}
        for number, case in enumerate(case for case in cases() if chosen(case.name)):
            root = Path(scratch) / f"case-{number}"
            root.mkdir()
            found[case.name] = case.observe(root, stores)
    return found


def write(file: Path, found: Mapping[str, Observed]) -> None:
    """Write the platform and the observations, one per line."""
    lines = [f'{{"platform": {json.dumps(platform())},', '"cases": {']
    for name, observed in found.items():
        inside = (
            f" {json.dumps(key)}: {json.dumps(observed[key], ensure_ascii=False)}" for key in sorted(observed)
        )
        lines.append(
            f"{json.dumps(name)}: {{\n" + ",\n".join(inside) + "\n}" + "," * (name != list(found)[-1])
        )
    file.write_text("\n".join([*lines, "}}"]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    parser.add_argument("cases", nargs="*", default=[""], help="how the names of the cases begin")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--file", type=Path, default=RECORDED)
    given = parser.parse_args()
    found = observations(lambda name: name.startswith(tuple(given.cases)))
    then = recorded(given.file) if given.file.exists() else {"platform": platform(), "cases": {}}
    same = then["platform"] == platform()
    if not given.record:
        lines = [
            f"{name}: {line}"
            for name in found
            for line in differences(then["cases"].get(name, {}), found[name], same)
        ]
        sys.exit("\n".join(lines) or None)
    if given.cases != [""] and not same:
        sys.exit(f"{given.file} is of another platform; record all cases, or none")
    kept = {} if given.cases == [""] else then["cases"]
    names = [case.name for case in cases() if case.name in kept | found]
    write(given.file, {name: found.get(name, kept.get(name)) for name in names})


if __name__ == "__main__":
    main()
