"""Command-line flags made from the configuration dataclasses, so that no option is written down twice.

A field becomes ``--prefix-field-name``; its help is the field's entry in the docstring's ``Attributes:`` section.
Invariant: a dataclass built from flags that were not given equals one built without arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from decoding.errors import InvalidRequestError

ConfigT = TypeVar("ConfigT")

_ENTRY = re.compile(r"(?m)^ {4}(\w+): (.*(?:\n {5,}.*)*)")


def add_flags(parser: argparse._ArgumentGroup, config: type[Any], *, prefix: str = "") -> None:
    """Add a flag for every field of a dataclass that is a value, not a dataclass itself."""
    texts = attribute_docs(config)
    for field, kind in _fields(config):
        default = "" if field.default is None else f" (default: {field.default})"
        options: dict[str, Any] = {
            "dest": _destination(field.name, prefix),
            "default": field.default,
            "help": f"{texts[field.name]}{default}".replace("%", "%%"),
        }
        if kind is bool:
            parser.add_argument(flag(field.name, prefix), action=argparse.BooleanOptionalAction, **options)
        elif typing.get_origin(kind) is typing.Literal:
            parser.add_argument(flag(field.name, prefix), choices=typing.get_args(kind), **options)
        else:
            name = field.name.rpartition("_")[2].upper()
            parser.add_argument(flag(field.name, prefix), type=kind, metavar=name, **options)


def read_flags(options: argparse.Namespace, config: type[ConfigT], *, prefix: str = "", **nested: object) -> ConfigT:
    """The dataclass as the flags have it; fields that have no flag come from ``nested``.

    Raises InvalidRequestError with the flag as its field.
    """
    values = {field.name: getattr(options, _destination(field.name, prefix)) for field, _ in _fields(config)}
    try:
        return config(**values, **nested)
    except InvalidRequestError as error:
        raise InvalidRequestError(flag(error.field, prefix), error.message) from error


def flag(name: str, prefix: str = "") -> str:
    """How a field is written on the command line."""
    return f"--{prefix}{name}".replace("_", "-")


def attribute_docs(config: type[Any]) -> Mapping[str, str]:
    """The entries of the docstring's ``Attributes:`` section, each on one line."""
    section = inspect.cleandoc(config.__doc__ or "").partition("Attributes:\n")[2]
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(section)}


def _fields(config: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        kind = hints[field.name]
        if isinstance(kind, types.UnionType):  # X | None
            (kind,) = (member for member in typing.get_args(kind) if member is not types.NoneType)
        if not dataclasses.is_dataclass(kind):
            yield field, kind


def _destination(name: str, prefix: str) -> str:
    return f"{prefix}{name}".replace("-", "_")
