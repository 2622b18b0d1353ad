"""Small random changes of a source tree that tests should notice, drawn from its syntax trees.

A mutant flips a comparison, changes a number, deletes a statement, swaps ``and`` and ``or`` or ``+`` and ``-``, or
negates a condition. Docstrings, texts, log messages, annotations, imports and ``__all__`` are not changed.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

#: Decorators of compiled functions, which cannot call functions of Python.
COMPILERS = {"compiled", "njit", "jit", "vectorize", "guvectorize"}

DELETED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Return, ast.Delete, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Mutant:
    """A change of one node: ``after`` replaces the bytes ``start`` to ``stop`` of ``file`` (relative to the tree).

    A test reaches the mutant if it executes one of ``lines``, the first to the last of the statement or of the head of
    a compound one. ``function`` is the innermost function, None for lines that are executed on import; ``compiled``
    tells whether it is compiled.
    """

    file: str
    line: int
    lines: tuple[int, int]
    kind: str
    before: str
    after: str
    start: int
    stop: int
    function: str | None
    compiled: bool

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.stop :]


@dataclass(frozen=True)
class Place:
    """A statement with its own expressions and its function; ``is_last`` if it is the final return of the function."""

    statement: ast.stmt
    heads: tuple[ast.expr, ...]
    lines: tuple[int, int]
    function: str | None
    compiled: bool
    is_last: bool


def places(tree: ast.Module) -> Iterator[Place]:
    yield from _places(tree.body, None, compiled=False)


def _places(
    body: Sequence[ast.stmt], function: str | None, *, compiled: bool, whole: bool = False
) -> Iterator[Place]:
    """Statements of a block; ``whole`` if it is the body of the function."""
    for statement in body:
        is_last = isinstance(statement, ast.Return) and statement is body[-1] and whole
        if _is_kept(statement):
            continue
        bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        bodies += [part.body for part in getattr(statement, "handlers", getattr(statement, "cases", []))]
        heads = tuple(_heads(statement))
        last = max((head.end_lineno or 0 for head in heads), default=statement.lineno)
        compound = any(bodies)
        lines = (statement.lineno, last if compound else statement.end_lineno or last)
        yield Place(statement, heads, lines, function, compiled, is_last)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = compiled or is_compiled(statement)
            yield from _places(statement.body, statement.name, compiled=inner, whole=True)
            continue
        for part in bodies:
            yield from _places(part, function, compiled=compiled)


def _is_kept(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "logging" | "warnings")))
        ):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__")
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _heads(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions of the statement itself, without annotations."""
    match statement:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            yield from arguments.defaults
            yield from (default for default in arguments.kw_defaults if default is not None)
        case ast.ClassDef():
            pass
        case ast.AnnAssign(value=value):
            yield from () if value is None else (value,)
        case ast.With(items=items):
            yield from (item.context_expr for item in items)
        case _:
            yield from (child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr))


def is_compiled(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {
        node.id for each in function.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)
    }
    return bool(names & COMPILERS)


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for place in places(ast.parse(source)):
        for node, kind, after in _changes(place):
            start = starts[node.lineno - 1] + node.col_offset
            stop = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            before = " ".join(source[start:stop].decode().split())
            function = place.function, place.compiled
            found.append(Mutant(file, node.lineno, place.lines, kind, before, after, start, stop, *function))
    return found


def _changes(place: Place) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    if isinstance(place.statement, DELETED) and not place.is_last:
        targets = getattr(place.statement, "targets", [])
        # Deleting the only assignment of a name leaves it undefined, which any test notices.
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield place.statement, "deletion", "pass"
    if isinstance(place.statement, ast.If | ast.While):
        yield place.statement.test, "negation", f"(not ({ast.unparse(place.statement.test)}))"
    for head in place.heads:
        for node in _expressions(head):
            yield from _changed(node)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Nodes of an expression, except those in f-strings."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _expressions(child)


def _changed(node: ast.expr) -> Iterator[tuple[ast.expr, str, str]]:
    match node:
        case ast.Compare(left=left, ops=[first, *others], comparators=right):
            yield node, "comparison", _code(ast.Compare(left, [FLIPS[type(first)](), *others], right))
        case ast.Constant(value=bool(value)):
            yield node, "constant", str(not value)
        case ast.Constant(value=int(value)):
            yield node, "constant", str(value + 1)
        case ast.Constant(value=float(value)):
            yield node, "constant", repr(2 * value or 1.0)
        case ast.BoolOp(op=operator, values=values):
            yield (
                node,
                "and/or",
                _code(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)),
            )
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
            if not any(
                isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or _is_text(side)
                for side in (left, right)
            ):
                yield (
                    node,
                    "+/-",
                    _code(ast.BinOp(left, ast.Sub() if isinstance(operator, ast.Add) else ast.Add(), right)),
                )
        case ast.IfExp(test=test):
            yield test, "negation", f"(not ({ast.unparse(test)}))"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _code(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def draw(tree: Path, seed: int, number: int) -> list[Mutant]:
    """Mutants at lines spread evenly over the code of ``streaming_jsmf``.

    Each line that can be changed has the same probability, so a package gets mutants in proportion to its code,
    regardless of the structure of the tree.
    """
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted((tree / "streaming_jsmf").rglob("*.py")):
        file = path.relative_to(tree).as_posix()
        for mutant in mutants_of(file, path.read_bytes()):
            by_line.setdefault((file, mutant.line), []).append(mutant)
    lines, generator = sorted(by_line), random.Random(seed)
    step = len(lines) / number
    start = generator.random() * step
    return [generator.choice(by_line[lines[int(start + step * place)]]) for place in range(number)]
