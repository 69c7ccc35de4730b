"""Frozen values of the core to and from JSON-ready documents, without loss.

The fields of a dataclass (or named tuple) are taken by name, and those at their default are left
out; so a value gains fields without a new line of code here, and old documents can still be read.
JSON has no infinity: a float that is not finite becomes the word ``inf``, ``-inf`` or ``nan``.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from themis_ray.core.cluster import Allocation
from themis_ray.core.explain import Reason
from themis_ray.errors import InvalidInputError, JournalError

WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(value: Any) -> Any:
    """A value as JSON can hold it.

    Raises:
        TypeError: The core has no values of this kind.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Enum):  # some are integers, too
        return value.name
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if _is_named_tuple(type(value)):
        return _encode_fields(value)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_fields(value)
    raise TypeError(f"a {type(value).__name__} has no place in a journal")


def _encode_fields(value: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": value.kind} if isinstance(value, Reason) else {}
    kind: Any = type(value)
    for name, default in _fields(kind):
        item = getattr(value, name)
        # Equal is not enough: 0.0 equals -0.0, and 1 equals True.
        if default is dataclasses.MISSING or item != default or repr(item) != repr(default):
            out[name] = encode(item)
    return out


def _is_named_tuple(cls: Any) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


@cache
def _fields(cls: Any) -> tuple[tuple[str, Any], ...]:
    """The fields that a constructor takes, with their defaults."""
    if _is_named_tuple(cls):
        defaults = cls._field_defaults
        return tuple((name, defaults.get(name, dataclasses.MISSING)) for name in cls._fields)
    out = []
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.init:
            out.append((field.name, default))
    return tuple(out)


@cache
def _hints(cls: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(cls)


def decode(hint: Any, document: Any, where: str) -> Any:
    """A value of a type, from its document.

    Args:
        hint: The type, as a field's annotation has it.
        document: What :func:`encode` made.
        where: The place, for messages.

    Raises:
        JournalError: The document is not one of that type; the message names the field.
    """
    if hint is Any:
        return document
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return _decode_plain(hint, document, where)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _decode_optional(inner, document, where)
    if origin is Literal:
        return document if document in inner else _wrong(where, f"one of {inner}", document)
    if origin is tuple:
        if not isinstance(document, list):
            _wrong(where, "a list", document)
        return tuple(decode(inner[0], x, f"{where}[{i}]") for i, x in enumerate(document))
    if origin is Mapping:
        items = _mapping(document, where)
        return {key: decode(inner[1], x, f"{where}.{key}") for key, x in items.items()}
    raise JournalError(f"{where}: no rule for the type {hint}")


def _decode_optional(kinds: tuple[Any, ...], document: Any, where: str) -> Any:
    if document is None and type(None) in kinds:
        return None
    [kind] = [kind for kind in kinds if kind is not type(None)]
    return decode(kind, document, where)


def _decode_plain(kind: type[Any], document: Any, where: str) -> Any:
    if kind is float:
        return _number(document, where)
    if kind in (bool, str, int):
        whole = kind is not int or not isinstance(document, bool)
        return document if isinstance(document, kind) and whole else _wrong(where, kind, document)
    try:
        if kind is Allocation:
            return Allocation(_mapping(document, where))
        if issubclass(kind, Enum):
            return kind[document]
        if issubclass(kind, Fraction):
            return Fraction(document)
        if dataclasses.is_dataclass(kind) or _is_named_tuple(kind):
            return _decode_fields(kind, _mapping(document, where), where)
    except JournalError:
        raise
    except (InvalidInputError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise JournalError(f"{where}: {error}") from error
    raise JournalError(f"{where}: no rule for the type {kind.__name__}")


def _decode_fields(cls: Any, document: Mapping[str, Any], where: str) -> Any:
    hints, known = _hints(cls), dict(_fields(cls))
    for name in document:
        if name not in known:
            raise JournalError(f"{where}: {cls.__name__} has no field {name!r} in this version")
    given = {name: decode(hints[name], x, f"{where}.{name}") for name, x in document.items()}
    for name, default in known.items():
        if default is dataclasses.MISSING and name not in given:
            raise JournalError(f"{where}.{name} is missing")
    return cls(**given)


def _number(document: Any, where: str) -> float:
    if isinstance(document, str) and document in WORDS:
        return WORDS[document]
    if isinstance(document, int | float) and not isinstance(document, bool):
        return document
    return float(_wrong(where, "a number", document))


def _mapping(document: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        _wrong(where, "an object", document)
    items: Mapping[str, Any] = document
    return items


def _wrong(where: str, wanted: Any, document: Any) -> Any:
    name = wanted.__name__ if isinstance(wanted, type) else wanted
    raise JournalError(f"{where}: {document!r} is not {name}")
