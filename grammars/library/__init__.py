"""Ready grammars, by name.

Invariant: every text of a grammar is read by the parser that its head names, and white space is bounded in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

from decoding.errors import ConstraintError
from grammars.constraint import Notation

MARK = "@"
"""A grammar that starts with it is a name of the library; in no notation can a text start so."""

_FILES: Mapping[str, str] = MappingProxyType(
    {"json": "json.gbnf", "arithmetic": "arithmetic.gbnf", "sql": "sql.lark", "calls": "calls.lark"}
)
NAMES = tuple(_FILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryGrammar:
    """A text and how it is written; it starts from the notation's own start rule."""

    notation: Notation
    text: str


def find(name: str, *, field: str) -> LibraryGrammar:
    """The grammar called ``name``, without the mark. Raises ConstraintError where there is none."""
    file = _FILES.get(name)
    if file is None:
        known = ", ".join(f"{MARK}{known}" for known in NAMES)
        raise ConstraintError(field, f"names the unknown grammar {MARK}{name}; use {known}, or the text of a grammar")
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return LibraryGrammar(notation=Notation(file.rpartition(".")[2]), text=text)
