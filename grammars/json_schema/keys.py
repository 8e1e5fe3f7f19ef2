"""The classes into which an object's keys fall.

    class         0 .. R-1                     R .. R+N-1
    its keys      not named, told apart by     one named key each, declared ones first,
                  languages they are in        in the order in which they must come

Invariant: classes are disjoint and together hold every key; all keys of a class are in the same `KeySet`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from decoding.errors import UnsupportedConstraintError
from grammars.json_schema.atoms import UNBOUNDED, KeySet
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.languages import Languages

MAX_REST_CLASSES = 256
MAX_NAMED = 64
"""A class of keys with at most so many members is dissolved into names, so that each comes once by the state alone."""


class KeyClasses:
    """Classes of the keys that ``key_sets`` tell apart.

    Attributes:
        names: the named keys.
        index_of: the place of each in `names`.
        all: bit set of all of them.
        rest: a formula over strings for each class of other keys.
    """

    def __init__(self, languages: Languages, declared: Iterable[str], key_sets: Iterable[KeySet]) -> None:
        key_sets = tuple(dict.fromkeys(key_sets))
        ordered = dict.fromkeys(declared)
        self._declared = (1 << len(ordered)) - 1
        ordered.update(dict.fromkeys(name for keys in key_sets for name in sorted(keys.names)))
        self.rest, vectors, few = _rest_classes(languages, tuple(ordered), key_sets)
        ordered.update(dict.fromkeys(few))
        self.names = tuple(ordered)
        self.index_of = {name: index for index, name in enumerate(self.names)}
        self.all = (1 << len(self.names)) - 1
        self._names_in: dict[KeySet, int] = {}
        self._rest_in: dict[KeySet, int] = {}
        for keys in key_sets:
            named = rest = 0
            for index, name in enumerate(self.names):
                if (name in keys.names or any(languages.contains(f, name) for f in keys.languages)) != keys.negated:
                    named |= 1 << index
            for index, vector in enumerate(vectors):
                if any(language in vector for language in keys.languages) != keys.negated:
                    rest |= 1 << index
            self._names_in[keys] = named
            self._rest_in[keys] = rest

    def contains(self, keys: KeySet, key_class: int) -> bool:
        """Whether the class lies in ``keys``."""
        if key_class < len(self.rest):
            return bool(self._rest_in[keys] >> key_class & 1)
        return bool(self._names_in[keys] >> (key_class - len(self.rest)) & 1)

    def may_come(self, keys: KeySet, remaining: int) -> bool:
        """Whether a key of ``keys`` may still come."""
        return bool(self._names_in[keys] & remaining or self._rest_in[keys])

    def most(self, remaining: int) -> int:
        """How many members may still come."""
        return UNBOUNDED if self.rest else remaining.bit_count()

    def members(self, keys: KeySet, remaining: int) -> Iterator[int]:
        """The classes within ``keys`` that may still come."""
        return (key_class for key_class in self.coming(remaining) if self.contains(keys, key_class))

    def coming(self, remaining: int) -> Iterator[int]:
        """The classes that may still come: named ones in order, then the others."""
        offset = len(self.rest)
        for index in range(len(self.names)):
            if remaining >> index & 1:
                yield offset + index
        yield from range(offset)

    def bit(self, key_class: int) -> int:
        """The bit of a named key; 0 for a class of others."""
        index = key_class - len(self.rest)
        return 1 << index if index >= 0 else 0

    def after(self, remaining: int, key_class: int) -> int:
        """The named keys that may still come after a key of ``key_class``: declared ones come in order, before all
        others.
        """
        index = key_class - len(self.rest)
        if index < 0:
            return remaining & ~self._declared
        bit = 1 << index
        if bit & self._declared:
            return remaining & ~(2 * bit - 1)
        return remaining & ~self._declared & ~bit


def _rest_classes(
    languages: Languages, names: tuple[str, ...], key_sets: tuple[KeySet, ...]
) -> tuple[tuple[int, ...], tuple[frozenset[int], ...], list[str]]:
    """Split the unnamed keys by the languages of ``key_sets``.

    Returns the formula of each class, the languages it lies in, and the keys of classes so small that these are named.
    """
    strings = languages.strings
    distinct = dict.fromkeys(language for keys in key_sets for language in keys.languages)
    everything = strings.negate(languages.words(names)) if distinct else TRUE
    classes: list[tuple[int, frozenset[int]]] = [(everything, frozenset())]
    for language in distinct:
        parts = []
        for formula, vector in classes:
            parts.append((strings.all_of((formula, language)), vector | {language}))
            parts.append((strings.all_of((formula, strings.negate(language))), vector))
        classes = [(formula, vector) for formula, vector in parts if not languages.is_empty(formula)]
        if len(classes) > MAX_REST_CLASSES:
            raise UnsupportedConstraintError(
                "constraint.json_schema", f"patternProperties that overlap in more than {MAX_REST_CLASSES} ways"
            )
    large, few = [], []
    for formula, vector in classes:
        words = languages.enumerated(formula, MAX_NAMED) if formula != TRUE else None
        if words is None:
            large.append((formula, vector))
        else:
            few += sorted(words)
    return tuple(formula for formula, _ in large), tuple(vector for _, vector in large), few
