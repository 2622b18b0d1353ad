"""Declaration of settings: every field states its type, default, bounds and help once.

Validation, the options of the command line, the keyword arguments of the public functions, docstrings and the reference
in the documentation are all generated from these declarations.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import re
import reprlib
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass
from functools import partial
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import Any, Literal, Self

from streaming_jsmf.errors import InputError, Option, require_unicode

#: Heading of the options that belong to no other group.
BASIC = "Basic"

#: Largest seed: the largest signed integer of 64 bits.
LARGEST_SEED = 2**63 - 1

_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


def setting(default: Any = MISSING, *, factory: Any = MISSING, **about: Any) -> Any:
    """Declare a field of a settings class; the keywords are the optional attributes of ``Field``."""
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata={"about": about})
    return dataclasses.field(default=default, metadata={"about": about})


#: Declares the seed of random draws.
seed_setting = partial(setting, 0, ge=0, le=LARGEST_SEED, aliases=("random_state",))


@dataclass(frozen=True)
class Field:
    """A declared field of a settings class.

    Parameters
    ----------
    name, help, default, annotation
        Of the field; its help is in the docstring of the class.
    number, choices, flag, optional, text, listed
        The type taken apart: the type of a number, the values of a literal, and whether it is a bool, may be None,
        is a string, and is a tuple of strings.
    group, rare
        Heading in the help of a command; rare options are listed by ``--help-all`` only.
    ge, gt, le, lt
        Bounds of a number.
    texts
        Default for texts if they have another one.
    absent
        What the default stands for where the value itself does not tell.
    flags, metavar
        Names of the option if they differ from the field's, and the placeholder of its value.
    aliases
        Other names of the keyword argument, in addition to those of the option.
    parse
        Converts text to a value and returns any other value unchanged; ValueError for a text that has none.
    pattern
        Regular expression of all of a string.
    wanted
        What a message says to give for a text that ``parse`` or ``pattern`` refuses.
    multiple
        Whether the option may be repeated.
    option
        Whether the field is an option and a keyword argument.
    moved
        Values that earlier versions had, and the command that computes the same now.
    """

    name: str
    help: str
    default: Any
    annotation: str
    number: type[int] | type[float] | None
    choices: tuple[str, ...]
    flag: bool
    optional: bool
    text: bool
    listed: bool
    group: str = BASIC
    rare: bool = False
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    texts: Any = None
    absent: str = ""
    flags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Callable[[Any], Any] | None = None
    pattern: str = ""
    wanted: str = ""
    multiple: bool = False
    option: bool = True
    moved: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the keyword argument, and its aliases."""
        flags = (flag.lstrip("-").replace("-", "_") for flag in self.flags)
        return tuple(dict.fromkeys((self.name, *flags, *self.aliases)))

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING and not self.multiple

    @property
    def is_switch(self) -> bool:
        """Whether the option has no value."""
        return self.flag and not self.metavar

    @property
    def shown_default(self) -> Any:
        """The default; None where it depends on the source or on other settings, and of required settings."""
        return None if self.absent or self.multiple or self.required else self.default

    @property
    def allowed(self) -> str:
        """The values that are allowed, in words; empty if any value is."""
        if self.flag:
            return "True or False"
        if self.number is None:
            return f"one of {', '.join(self.choices)}" if self.choices else ""
        kind = "a whole number" if self.number is int else "a number"
        bounds = " and ".join(f"{word} {_bound_text(bound)}" for _, word, bound in self._bounds)
        number = f"{kind} {bounds.replace('at', 'of at', 1) if bounds.startswith('at') else bounds}".rstrip()
        return ", or ".join([*([", ".join(self.choices)] if self.choices else []), number])

    @property
    def shown(self) -> Option:
        """The field in messages."""
        return Option(self.name, self.flags[0] if self.flags else "")

    @property
    def _bounds(self) -> list[tuple[Callable[[Any, Any], bool], str, float]]:
        bounds = ((compare, word, getattr(self, name)) for name, (compare, word) in _BOUNDS.items())
        return [bound for bound in bounds if bound[2] is not None]

    def parsed(self, given: Any) -> Any:
        """Return the value that an option or a keyword argument stands for, which ``checked`` may still refuse."""
        if self.parse is None:
            return given
        try:
            return self.parse(given)
        except ValueError as error:
            raise InputError(f"{self.shown} is {given!r}; give {self.wanted}") from error

    def read(self, given: Any) -> Any:
        """Return the value of a text by the type of the field; raise ``InputError`` as ``checked``."""
        value = self.parsed(given)
        if isinstance(value, str) and not self.parse and value not in self.choices:
            if self.flag:
                value = {"true": True, "false": False}.get(value.strip().lower(), value)
            elif self.number:
                with suppress(ValueError):
                    value = self.number(value)
        return self.checked(value)

    def checked(self, value: Any) -> Any:
        """Return ``value`` as a plain Python value; raise ``InputError`` if it is not allowed.

        A comma-separated text is a tuple of strings where the field is one.
        """
        if getattr(value, "ndim", None) == 0:
            value = value.item()  # NumPy scalars, as parameter grids have them, are not JSON
        if self.listed and value is not None and value not in self.choices:
            return self._names(value)
        if self.text and not self.multiple and value is not None:
            value = self._string(value)
        if self.text or isinstance(value, list | tuple):
            for text in _strings(value):
                require_unicode(text, self.name)
        if (value is None and self.optional) or not self.allowed or self.multiple:
            return value
        if self.flag:
            valid = isinstance(value, bool)
        elif isinstance(value, str):
            valid = value in self.choices
        else:
            valid = self._in_bounds(value)
        if not valid:
            former = self.moved.get(value) if isinstance(value, str) else None
            raise InputError(
                f"{self.shown} is {value!r}; give {self.allowed}"
                if former is None
                else f"{self.shown(value)} was removed; {moved_to(former)}"
            )
        return value

    def _string(self, value: Any) -> str:
        value = fspath(value) if isinstance(value, PathLike) else value
        if not isinstance(value, str):
            raise InputError(
                f"{self.shown} is {reprlib.repr(value)}; give a string ({self.help.rstrip('.')})"
            )
        if self.pattern and not re.fullmatch(self.pattern, value, re.DOTALL):
            raise InputError(f"{self.shown} is {value!r}; give {self.wanted}")
        return value

    def _names(self, value: Any) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            wanted = ", or ".join([*self.choices, "names, separated by commas"])
            raise InputError(f"{self.shown} is {reprlib.repr(value)}; give {wanted}")
        names = parts if parts is value else filter(None, map(str.strip, parts))
        return tuple(require_unicode(name, self.name) for name in names)

    def _in_bounds(self, value: Any) -> bool:
        if self.number is None or isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not math.isfinite(value) or (self.number is int and not isinstance(value, int)):
            return False
        return all(compare(value, bound) for compare, _, bound in self._bounds)


def moved_to(command: str) -> str:
    """What a message says about an experiment that is no longer in the package."""
    return f"it is an experiment in the repository of this package now: python -m {command}"


def _strings(value: Any) -> Iterator[str]:
    """The strings in a setting, which may be nested."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)


def _bound_text(bound: float) -> str:
    power = int(bound).bit_length()  # the largest seeds and ids are 2^n - 1
    return f"2^{power} - 1" if power > 30 else f"{bound:g}"


_DECLARED: dict[type, Mapping[str, Field]] = {}


def declared(kind: type[Any]) -> Mapping[str, Field]:
    """The fields of a settings class that are declared with ``setting``, by name."""
    if kind not in _DECLARED:
        hints = typing.get_type_hints(kind)
        helps: dict[str, str] = {}
        for base in reversed(kind.__mro__):
            helps |= _helps(base.__doc__ or "")
        _DECLARED[kind] = {
            field.name: _field(field, hints[field.name], helps.get(field.name, ""))
            for field in dataclasses.fields(kind)
            if "about" in field.metadata
        }
    return _DECLARED[kind]


def declared_in(kinds: Iterable[type[Any]]) -> Mapping[str, Field]:
    """The declared fields of several settings classes by name; the first class that declares a name counts."""
    found: dict[str, Field] = {}
    for kind in kinds:
        for name, field in declared(kind).items():
            found.setdefault(name, field)
    return found


def _helps(docstring: str) -> dict[str, str]:
    """The descriptions in the section "Parameters" of a numpydoc docstring, by name, each as one line."""
    section = inspect.cleandoc(docstring).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.split(r"\n(?=\S)", section)
    return {name: " ".join(text.split()) for name, _, text in (entry.partition("\n") for entry in entries)}


def _field(field: dataclasses.Field[Any], hint: Any, help: str) -> Field:
    about = field.metadata["about"]
    parts = [*_alternatives(typing.get_args(hint)[0] if about.get("multiple") else hint)]
    choices = tuple(part for part in parts if isinstance(part, str))
    number = next((kind for kind in (float, int) if kind in parts), None)
    listed = tuple in parts and {*parts} <= {tuple, NoneType, *choices} and not about.get("multiple")
    if {*parts} - {*choices, int, float, bool, NoneType}:
        number, choices = None, choices if listed else ()  # text, a path or a list, which nothing here checks
    kinds = (bool in parts, NoneType in parts, str in parts and {*parts} <= {str, NoneType}, listed)
    if about.get("texts") is not None:
        about = {"absent": f"{field.default}; for texts {about['texts']}", **about}
    return Field(field.name, help, field.default, str(field.type), number, choices, *kinds, **about)


def _alternatives(hint: Any) -> Iterator[Any]:
    """The members of a union, the values of a literal, or the type itself."""
    if typing.get_origin(hint) is Literal:
        yield from typing.get_args(hint)
    elif isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        for part in typing.get_args(hint):
            yield from _alternatives(part)
    else:
        yield typing.get_origin(hint) or hint


def fields_given(kind: type[Settings], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``kind`` that are in ``options``, with text converted to values."""
    return {
        name: field.parsed(options[key])
        for name, field in declared(kind).items()
        for key in field.names
        if key in options and field.option
    }


def for_texts(kind: type[Settings]) -> dict[str, Any]:
    """The defaults of a settings class that are others for texts."""
    return {name: field.texts for name, field in declared(kind).items() if field.texts is not None}


class Settings:
    """Base of the frozen dataclasses of settings.

    Raises ``InputError`` if a declared field is out of range; the message names it and the values that are allowed.
    """

    def __post_init__(self) -> None:
        for name, field in declared(type(self)).items():
            object.__setattr__(self, name, field.checked(getattr(self, name)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The settings with the fields that keyword arguments or command-line options name, by any of their names."""
        return cls(**fields_given(cls, options))

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of their declaration."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


def parameters_text(fields: Iterable[Field], title: str = "Parameters") -> str:
    """The section "Parameters" of a numpydoc docstring."""
    lines = [title, "-" * len(title)]
    for field in fields:
        lines += [f"{field.name} : {type_text(field)}", *textwrap.wrap(field.help, 100, **_INDENT)]
    return "\n".join(lines)


_INDENT: Any = {"initial_indent": "    ", "subsequent_indent": "    "}


def type_text(field: Field) -> str:
    """The type and the default of a field as in scikit-learn's docstrings."""
    kind = "bool" if field.flag else field.number.__name__ if field.number else ""
    kind = "sequence of str" if field.listed else kind
    choices = "{" + ", ".join(f"'{choice}'" for choice in field.choices) + "}" if field.choices else ""
    shown = " or ".join(filter(None, [kind, choices])) or field.annotation.removesuffix(" | None").replace(
        " | ", " or "
    )
    shown += " or None" if field.optional else ""
    if field.default is MISSING:
        return shown
    absent = field.absent
    note = f" ({absent})" if absent not in ("", "none") else ""
    return f"{shown}, default={field.default!r}{note}"
