"""Formulas of covariates, in the syntax of R: read, checked, and made into design matrices batch by batch.

formulaic evaluates parts of a formula as Python. Only names of columns, numbers, operators and the functions below
reach it; everything else is refused first. Names in backticks get other names while it works, so that no text of a
file is evaluated either.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.linalg.typing import Floats

if TYPE_CHECKING:
    import pandas as pd

#: Functions that a formula may call, and contrasts of ``C``.
FUNCTIONS = ("C", "I", "bs", "cc", "center", "cr", "cs", "exp", "log", "log10", "log2", "poly", "scale")
CONTRASTS = ("SAS", "diff", "helmert", "poly", "sum", "treatment")
#: Longest formula, largest power of a sum of terms, most products, and most columns and largest degree of a spline.
MOST_CHARACTERS, MOST_POWER, MOST_PRODUCTS, MOST_PARTS = 2_000, 5, 10, 100
_OPERATORS = {"+", "-", "*", "/", ":", "^", "**"}
_EXPRESSIONS = (
    *(
        ast.Expression,
        ast.Call,
        ast.keyword,
        ast.Name,
        ast.Constant,
        ast.List,
        ast.Tuple,
        ast.Load,
        ast.Attribute,
    ),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.UAdd, ast.USub),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
_SPLINES = {"bs", "cc", "cr", "cs", "poly"}


@dataclass(frozen=True)
class Formula:
    """A checked formula: ``text`` as given, and ``expression`` for formulaic, in which ``aliases`` stand for columns.

    ``columns`` are those that it uses: by ``plain`` name, or in backticks, or both. Those in ``coded`` are within
    ``C``, so that their values are classes.
    """

    text: str
    expression: str
    aliases: Mapping[str, str]
    columns: tuple[str, ...]
    plain: frozenset[str]
    coded: frozenset[str]

    @classmethod
    def read(cls, text: str, known: Sequence[str], where: str) -> Formula:
        """Check a formula of ``known`` columns of ``where``; ``InputError`` for what it may not have."""
        from formulaic import Formula as Parsed
        from formulaic.errors import FormulaicError
        from formulaic.parser.algos.tokenize import tokenize

        if not text.strip() or len(text) > MOST_CHARACTERS:
            raise InputError(
                f"the formula has {len(text)} characters; give covariates, such as party + bs(year, df=4)"
            )
        aliases: dict[str, str] = {}
        # A formula of R may begin with ~; the topics stand before it.
        expression = re.sub(
            "`([^`]*)`", lambda found: _alias(found[1], aliases, known), text.strip().removeprefix("~")
        )
        found = _Reading(text, known, where, aliases)
        try:
            for token in tokenize(expression):
                found.add(token.kind.value, token.token)
            Parsed(expression)
        except (FormulaicError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
            raise InputError(f"the formula {text!r} cannot be read: {_reason(error)}") from error
        if not found.columns:
            raise InputError(f"the formula {text!r} has no covariate; give columns, such as party + year")
        plain, coded = frozenset(found.plain), frozenset(found.coded)
        return cls(text, expression, aliases, tuple(found.columns), plain, coded)

    def frame(self, columns: Mapping[str, Any]) -> pd.DataFrame:
        """Columns by name as a frame with the names of the expression."""
        import pandas as pd

        own = {name: columns[name] for name in columns if name in self.plain}
        return pd.DataFrame(own | {alias: columns[name] for alias, name in self.aliases.items()})

    def shown(self, name: str) -> str:
        """A text of formulaic with the names of the columns, in backticks within functions."""
        for alias, original in self.aliases.items():
            alone = re.compile(rf"(^|:){alias}(?=$|[:\[])")
            name = alone.sub(lambda found: f"{found[1]}{original}", name)  # noqa: B023  (called at once)
            name = name.replace(alias, f"`{original}`")
        return name


def _alias(name: str, aliases: dict[str, str], known: Sequence[str]) -> str:
    """The name that stands for a column in backticks."""
    alias = next((alias for alias, original in aliases.items() if original == name), "")
    alias = alias or f"quoted_column_{len(aliases)}_"
    while alias in known:
        alias += "_"
    aliases[alias] = name
    return alias


@dataclass
class _Reading:
    """The columns of a formula that is read token by token."""

    text: str
    known: Sequence[str]
    where: str
    aliases: Mapping[str, str]
    columns: dict[str, None] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)
    coded: set[str] = field(default_factory=set)
    before: str = ""
    products: int = 0

    def add(self, kind: str, token: str) -> None:
        if kind == "name":
            self.column(token)
        elif kind == "python":
            self.python(token)
        elif kind == "value":
            power = self.before in ("^", "**")
            if not token.isdecimal() or not (2 <= int(token) <= MOST_POWER if power else int(token) <= 1):
                raise self.refused(token)
        elif token not in ({"(", ")"} if kind == "context" else _OPERATORS):
            raise self.refused(token)
        self.products += token == "*"
        if self.products > MOST_PRODUCTS:
            raise InputError(
                f"the formula {self.text!r} has more than {MOST_PRODUCTS} *; give fewer interactions"
            )
        self.before = token

    def refused(self, what: str) -> InputError:
        return InputError(
            f"the formula {self.text!r} has {what!r}; it may have columns (with other names than words in "
            f"backticks), 0, 1, + - * / : ^ ( ), numbers within functions, and the functions {', '.join(FUNCTIONS)}"
        )

    def column(self, name: str) -> str:
        original = self.aliases.get(name, name)
        if original not in self.known:
            for alias, quoted in self.aliases.items():
                original = original.replace(alias, f"`{quoted}`")
            near = get_close_matches(original, self.known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.known)}"
            raise InputError(f"{self.where} has no column {original!r}; {hint}")
        if original in FUNCTIONS and original == name:
            raise InputError(f"the column {name!r} has the name of a function; put it in backticks: `{name}`")
        if original == name:
            self.plain.add(name)
        self.columns[original] = None
        return original

    def python(self, code: str) -> None:
        """Check a call of a function, or an expression of numbers and columns."""
        called: set[int] = set()
        for node in ast.walk(ast.parse(code.strip(), mode="eval")):
            if not isinstance(node, _EXPRESSIONS):
                raise self.refused(ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__)
            if isinstance(node, ast.Call):
                called.add(id(node.func))
                self.call(node)
            elif isinstance(node, ast.Attribute):
                self.contrast(node)
                called.update((id(node.value), id(node)))
            elif isinstance(node, ast.Name) and id(node) not in called:
                self.column(node.id)
            elif isinstance(node, ast.Constant):
                self.constant(node.value)
            elif isinstance(node, ast.BinOp):
                self.arithmetic(node)

    def call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not name and not isinstance(node.func, ast.Attribute):
            raise self.refused(ast.unparse(node))
        if name and name not in FUNCTIONS:
            raise self.refused(f"{name}(...)")
        if any(keyword.arg is None or keyword.arg.startswith("_") for keyword in node.keywords):
            raise self.refused(ast.unparse(node))
        if name == "C" and node.args and isinstance(node.args[0], ast.Name):
            self.coded.add(self.column(node.args[0].id))
        if name in _SPLINES:
            given = [*node.args[1:2], *(one.value for one in node.keywords if one.arg in ("df", "degree"))]
            numbers = [one.value for one in given if isinstance(one, ast.Constant)]
            if any(isinstance(one, int | float) and one > MOST_PARTS for one in numbers):
                raise InputError(
                    f"{ast.unparse(node)} has more than {MOST_PARTS} columns; give a smaller number"
                )

    def contrast(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id == "contr" and node.attr in CONTRASTS):
            raise InputError(
                f"the formula {self.text!r} has {ast.unparse(node)!r}; put a name with a dot in backticks: "
                f"`{ast.unparse(node)}`"
            )

    def constant(self, value: Any) -> None:
        # Texts are names of levels or of ways to extrapolate; formulaic puts them into an expression in quotes.
        if isinstance(value, str) and (set(value) & set("\"'\\{}`") or not value.isprintable()):
            raise self.refused(value)
        if (
            not isinstance(value, str | int | float | None)
            or abs(value if isinstance(value, int) else 0) > 1e15
        ):
            raise self.refused(str(value)[:40])

    def arithmetic(self, node: ast.BinOp) -> None:
        """Refuse what takes long without a column: powers of numbers, and repeated texts and lists."""
        sides = [one.value if isinstance(one, ast.Constant) else one for one in (node.left, node.right)]
        if any(isinstance(one, str | ast.List | ast.Tuple) for one in sides):
            raise self.refused(ast.unparse(node))
        if isinstance(node.op, ast.Pow):
            small = isinstance(sides[1], int | float) and abs(sides[1]) <= 2 * MOST_POWER
            if not small or not any(isinstance(one, ast.Name) for one in ast.walk(node.left)):
                raise self.refused(ast.unparse(node))


@dataclass(frozen=True)
class Design:
    """The columns of the design matrix of a formula: their ``terms``, and levels, knots and centers as fixed."""

    formula: Formula
    terms: tuple[str, ...]
    specification: Any = field(repr=False)

    @classmethod
    def of(cls, formula: Formula, columns: Mapping[str, Any]) -> tuple[Design, Floats]:
        """Fix the design by the values of documents in ``columns``; also return its matrix, without infinite rows."""
        from formulaic import model_matrix

        frame = formula.frame(columns)
        with _evaluated(formula):
            made = model_matrix(formula.expression, frame, context={}, na_action="ignore", output="numpy")
            finite = np.isfinite(np.asarray(made, np.float64)).all(axis=1)
            if not finite.all() and finite.any():
                made = model_matrix(
                    formula.expression, frame[finite], context={}, na_action="ignore", output="numpy"
                )
        specification = made.model_spec
        design = cls(formula, tuple(map(formula.shown, specification.column_names)), specification)
        rows = np.asarray(made, np.float64).reshape(-1, len(design.terms))
        return design, rows[np.isfinite(rows).all(axis=1)]

    def matrix(self, columns: Mapping[str, Any]) -> tuple[Floats, NDArray[np.bool_]]:
        """The rows (M, p) of documents, and which of them are finite (M,)."""
        with _evaluated(self.formula):
            made = self.specification.get_model_matrix(self.formula.frame(columns), context={})
        rows = np.asarray(made, np.float64).reshape(-1, len(self.terms))
        return rows, np.asarray(np.isfinite(rows).all(axis=1))


@contextmanager
def _evaluated(formula: Formula) -> Iterator[None]:
    """Tell the formula in errors of its evaluation, and be silent about logarithms of 0."""
    from formulaic.errors import FormulaicError

    try:
        with np.errstate(all="ignore"):
            yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
        FormulaicError,
    ) as error:
        raise InputError(
            f"the formula {formula.text!r} cannot be evaluated: {formula.shown(_reason(error))}"
        ) from error


def _reason(error: Exception) -> str:
    """The message of formulaic or Python, without marks of a terminal and references to code."""
    message = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]| \(<unknown>, line \d+\)", "", first_line(error))
    inner = re.search(r"^Unable to evaluate factor `.*?`\. \[\w+: (.*)\]$", message)
    return (inner[1] if inner else message).rstrip(".")
