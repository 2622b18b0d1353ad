"""Settings as keyword arguments: the public functions take settings objects, or their fields one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from streaming_jsmf.config.fields import Settings, declared_in, fields_given, moved_to, parameters_text
from streaming_jsmf.config.inference import MOVED, EngineChoice, InferSettings, StodSettings
from streaming_jsmf.config.readers import in_place_of_read
from streaming_jsmf.errors import InputError, Option, option, taking
from streaming_jsmf.fingerprint import LONGEST_VALUE

S = TypeVar("S", bound=Settings)
Function = TypeVar("Function", bound=Callable[..., Any])

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

#: Settings of each engine, and all that a function takes that infers topics.
ENGINES: Mapping[str, type[InferSettings] | type[StodSettings]] = {
    kind.engine: kind for kind in (InferSettings, StodSettings)
}
ENGINE_SETTINGS = (EngineChoice, *ENGINES.values())


def require_kind(name: str, value: object, *kinds: type, advice: str = "") -> None:
    """Raise ``InputError`` if an argument is not an instance of one of these classes; None stands for a default."""
    if value is not None and not isinstance(value, kinds):
        wanted = advice or " or ".join(f"{kind.__name__}(...)" for kind in kinds)
        raise InputError(f"{name} is {str(value)[:LONGEST_VALUE]!r} ({type(value).__name__}); give {wanted}")


#: Options of ``scan`` that earlier versions changed a store with.
_GROWTH = ("add", "changes", "merge", "rebase", "remove")


def in_place_of(name: str, known: Collection[str]) -> str:
    """What to do instead of an option that earlier versions had, if the ``known`` ones tell its verb; else empty."""
    if name in _GROWTH and "follow" in known:
        return (
            "a moments store belongs to one corpus: add or remove shards of the corpus, or ingest all documents into "
            f"one, then scan it with {option.follow(True)}"
        )
    return moved_to(MOVED[name]) if name in MOVED and "engine" in known else ""


def takes(*kinds: type[Settings], without: Collection[str] = ()) -> Callable[[Function], Function]:
    """A decorator: a function with ``**options`` takes the fields of these settings as keyword arguments.

    It refuses other keywords, and shows the fields in the signature and the docstring of the function, which reads them
    with ``settings_of`` or ``Settings.of``. Aliases, also of the function's own parameters, are passed by their names.
    """
    every = {name: field for name, field in declared_in(kinds).items() if name not in without}
    fields = {name: field for name, field in every.items() if field.option}

    def apply(function: Function) -> Function:
        signature = inspect.signature(function)
        own = {
            name: value for name, value in signature.parameters.items() if value.kind is not value.VAR_KEYWORD
        }
        names = {name: name for name in own} | {
            alias: name
            for name, field in every.items()
            if name in own or name in fields
            for alias in field.names
        }

        @wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            for name in options.keys() - names.keys():
                from difflib import get_close_matches

                if name == "read" and "reader" in names:
                    now = ", ".join(each.alone for each in in_place_of_read(options[name]))
                    raise TypeError(f"read={{...}} was removed; use {now or 'keyword arguments'}")
                if now := in_place_of(name, names):
                    raise TypeError(f"{name}= was removed; {now}")
                near = get_close_matches(name, names, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
            spelled: dict[str, str] = {}
            for given in options:
                first = spelled.setdefault(names[given], given)
                if first != given:
                    raise TypeError(
                        f"{function.__name__}() got {first!r} and {given!r}, which are the same; give one"
                    )
            with taking({*names, *every}):
                return function(*arguments, **{name: options[given] for name, given in spelled.items()})

        keywords = [
            inspect.Parameter(
                name, KEYWORD_ONLY, default=inspect.Parameter.empty if field.required else field.shown_default
            )
            for name, field in fields.items()
            if name not in own
        ]
        others = parameters_text(fields.values(), "Other Parameters")
        checked.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{others}"
        checked.options = fields  # type: ignore[attr-defined]  # for the type stub
        checked.__signature__ = signature.replace(parameters=[*own.values(), *keywords])  # type: ignore[attr-defined]
        return cast(Function, checked)

    return apply


def settings_of(name: str, kind: type[S], settings: S | None, options: Mapping[str, Any]) -> S:
    """Return the argument ``settings`` of a function, or the defaults for None, with the fields that ``options`` has.

    Raises ``InputError`` if ``settings``, the argument ``name``, is not of this kind, or a field is out of range.
    """
    require_kind(name, settings, kind)
    if settings is None:
        return kind.of(options)
    own = fields_given(kind, options)
    return replace(settings, **own) if own else settings  # type: ignore[type-var]


def engine_settings_of(
    n_topics: int,
    settings: InferSettings | StodSettings | None,
    options: Mapping[str, Any],
    *,
    name: str = "settings",
    shared: Collection[str] = (),
) -> InferSettings | StodSettings:
    """Return the settings of the engine that ``settings`` or ``options`` name, with the fields that ``options`` has.

    ``name`` is that of the argument ``settings``, and ``shared`` are options that are fields of other settings, too, so
    that any engine accepts them. Raises ``InputError`` if the engine is unknown, for an option of the other engine, or
    if a field is out of range.
    """
    require_kind(name, settings, *ENGINES.values())
    engine = EngineChoice.of(options).engine if settings is None else settings.engine
    if options.get("engine", engine) != engine:
        raise InputError(
            f"{option.engine} is {options['engine']!r} and {name} is for {engine}; leave one out"
        )
    for other in ENGINES.keys() - {engine}:
        foreign = sorted(fields_given(ENGINES[other], options).keys() - {*shared})
        if foreign:
            raise InputError(
                f"{', '.join(str(Option(name)) for name in foreign)} belongs to engine {other}; leave it out, or "
                "choose that engine"
            )
    base: Any = ENGINES[engine](n_topics) if settings is None else settings
    found: InferSettings | StodSettings = settings_of(name, ENGINES[engine], base, options)
    return found
