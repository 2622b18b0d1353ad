"""Tables in pages that are copies of results, and numbers in pages that their results do not contain.

    python -m pipelines.pages

A table below `<!-- table 1 of stod_fig1/stod_fig1 -->` is the first table of docs/results/stod_fig1/stod_fig1.md; the
command writes all of them again. Every other number with a decimal point, and every integer above 1,000 that is no
multiple of 100 (those are sizes and settings), must occur, to the digits given, in the tables of a result or among the
sizes in its record, if its section, or its row in a table with a column *record*, has named the result so far; or it is
computed from such numbers in a comment, `<!-- 2.2 = 8.8 / 4.0 -->`. Numbers of the papers are those in the column
*paper* of a page, and settings are written as code. From a block that says "no record", which must tell the number of
runs, to one that names a result nothing is checked.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Iterator

import click

from pipelines.common.provenance import ROOT

RESULTS = ROOT / "docs" / "results"

PAGES = tuple(
    ROOT / name
    for name in (
        "README.md",
        "docs/reproduction.md",
        "docs/reproduction_stod.md",
        "docs/quality.md",
        "docs/performance.md",
        "docs/findings/anchor_stability.md",
        "docs/findings/coherence_repetition.md",
        "docs/findings/equal_time.md",
        "docs/findings/later_papers.md",
        "docs/findings/near_ties.md",
        "docs/findings/noise_removal.md",
        "docs/findings/one_pass.md",
        "docs/findings/rectification_steps.md",
        "docs/findings/size_corrected_metrics.md",
        "docs/findings/update_steps.md",
    )
)

COPY = re.compile(r"(<!-- table (\d+) of (\S+) -->\n\n?)((?:\|.*\n)*)")
COMPUTED = re.compile(r"<!-- (\S+) = (.+?) -->")
NUMBER = re.compile(
    r"(?<![\w.])-?(?:\d[\d,]*)?\.\d+(?:e-?\d+)?(?![\w])|(?<![\w.])\d+e-\d+"
    r"|(?<![\w.,])(?!\d+(?:,\d+)*00\b)\d{1,3}(?:,\d{3})+(?![\w]|[.,]\d)"
)
ANY_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|-?\.\d+")
RUNS = re.compile(r"\b(?:runs?|medians?|means|seeds?|turns|deviations?)\b", re.IGNORECASE)
NAMED = re.compile(r"results/(\w+)")
#: Code, addresses, comments and versions contain no results.
SKIPPED = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|(?:Python |Apache-|CC BY )\d\.\d+", re.DOTALL)

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def with_tables(text: str) -> str:
    """The page with the tables that its results have now."""
    return COPY.sub(lambda found: found[1] + tables_of(found[3])[int(found[2]) - 1] + "\n", text)


def tables_of(result: str) -> list[str]:
    """The tables in the Markdown of a result."""
    parts = (RESULTS / f"{result}.md").read_text(encoding="utf-8").split("\n\n")
    return [part.strip() for part in parts if part.startswith("|")]


def unknown_numbers(text: str) -> list[str]:
    """Each unknown number with its section."""
    text = COPY.sub(lambda found: f"`results/{found[3]}`\n", text)
    papers = [number for row in _column(text, "paper") for number in ANY_NUMBER.findall(row)]
    found = []
    for section in re.split(r"(?m)^(?=#+ )", text):
        heading, known, recorded = section.partition("\n")[0], list(papers), True
        for block in _blocks(section):
            if block.startswith("|") and "\n" not in block:
                known = list(papers)
            if names := {name for name in NAMED.findall(block) if (RESULTS / name).is_dir()}:
                known += [number for name in sorted(names) for number in _numbers_of(name)]
            unrecorded = "no record" in block.lower()
            recorded = not unrecorded and (recorded or bool(names))
            if unrecorded and not RUNS.search(block):
                found.append(f"{heading}: no record, and no number of runs")
            for number, formula in COMPUTED.findall(block):
                if _agree(number, [_value(formula, known)]):
                    known.append(number)
            shown = NUMBER.findall(SKIPPED.sub(" ", block)) if recorded else []
            values = [_float(number) for number in known]
            found += [f"{heading}: {number}" for number in shown if not _agree(number, values)]
    return found


def _blocks(section: str) -> Iterator[str]:
    """Paragraphs, lists and tables, without code; each row of a table with a column *record* is a block."""
    for block in re.sub(r"(?ms)^```.*?^```", "", section).split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("    ")]
        if lines and "| record |" in lines[0]:
            yield from lines[2:]
        else:
            yield "\n".join(lines)


def _column(text: str, title: str) -> list[str]:
    """The cells of a column of the first table that has it."""
    for block in text.split("\n\n"):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]
        if block.startswith("|") and title in rows[0]:
            return [row[rows[0].index(title)] for row in rows[2:]]
    return []


def _numbers_of(name: str) -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((RESULTS / name).glob("*.md"))]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS / name).glob("*.json")]
    sizes = [
        f"{row[size]}"
        for each in records
        for row in each["corpora"].values()
        for size in ("documents", "words")
    ]
    return sizes + [number for text in texts for number in ANY_NUMBER.findall(text)]


def _agree(number: str, values: list[float]) -> bool:
    """Whether a value rounds to the number, whose sign may be given by the text."""
    digits, _, exponent = number.partition("e")
    half = 0.5001 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return any(abs(abs(value) - abs(_float(number))) <= half for value in values)


def _value(formula: str, known: list[str]) -> float:
    """The value of an arithmetic expression; raises ``ValueError`` for a number that is not known."""

    def of(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return float(OPERATORS[type(node.op)](of(node.left), of(node.right)))
        number = ast.unparse(node)
        if not _agree(number, [_float(each) for each in known]):
            raise ValueError(f"{formula}: no result contains {number}")
        return _float(number)

    return of(ast.parse(formula, mode="eval").body)


def _float(number: str) -> float:
    return float(number.replace(",", ""))


@click.command(help=__doc__)
def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_tables(text), encoding="utf-8")
        for number in unknown_numbers(text):
            click.echo(f"{page.name}: {number}")


if __name__ == "__main__":
    main()
