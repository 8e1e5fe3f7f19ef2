"""The classes into which an object's keys fall.

    class         0 .. R-1                     R .. R+N-1
    its keys      not named, told apart by     one named key each, declared ones first,
                  languages they are in        in the order in which they must come

Sets of classes are bit sets. Invariant: classes are disjoint and together hold every key; all keys of a class are in
the same `KeySet`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from decoding.errors import UnsupportedConstraintError
from grammars.json_schema.atoms import UNBOUNDED, Keys, KeySet, Outside, Unnamed
from grammars.json_schema.boolean import TRUE
from grammars.json_schema.languages import Languages
from grammars.json_schema.spelling import SpelledWords

MAX_REST_CLASSES = 256
MAX_NAMED = 64
"""A class of keys with at most so many members is dissolved into names, so that each comes once by the state alone."""


class KeyClasses:
    """Classes of the keys that ``key_sets`` tell apart.

    Attributes:
        rest: a formula over strings for each class of other keys.
        names: the named keys.
        all: every class.
        named: the classes of named keys.
        spelled: the names as they are written.
        is_endless: the other keys never run out, whatever they begin with.
    """

    def __init__(
        self, languages: Languages, declared: Iterable[str], sets: tuple[Keys, ...], *, in_order: bool
    ) -> None:
        """With ``in_order`` the keys ``declared`` come in that order, before all others; else all come in any order."""
        key_sets = tuple(dict.fromkeys(inner for keys in sets for inner in _parts(keys)))
        ordered = dict.fromkeys(declared)
        num_declared = len(ordered) if in_order or Unnamed() in sets else 0
        for keys in key_sets:
            ordered.update(dict.fromkeys(keys.names if len(keys.names) == 1 else sorted(keys.names)))
        self.rest, vectors, few = _rest_classes(languages, tuple(ordered), key_sets)
        ordered.update(dict.fromkeys(few))
        self.names = tuple(ordered)
        num_rest = len(self.rest)
        self.rest_bits = (1 << num_rest) - 1
        self.all = (1 << (num_rest + len(self.names))) - 1
        self._declared = ((1 << num_declared) - 1) << num_rest
        self._class_of = {name: num_rest + index for index, name in enumerate(self.names)}
        self._within: dict[Keys, int] = {keys: self._members(languages, keys, vectors) for keys in key_sets}
        for outside in sets:
            if isinstance(outside, Unnamed):
                self._within[outside] = self.rest_bits
            if isinstance(outside, Outside):
                self._within[outside] = self.all
                for inner in outside.sets:
                    self._within[outside] &= ~self._within[inner]
        self.spelled = SpelledWords(self.names, languages.characters)
        self.is_endless = len(self.rest) == 1 and languages.is_endless(self.rest[0])

    def class_of(self, name: str) -> int:
        """The class of a named key."""
        return self._class_of[name]

    def within(self, keys: Keys) -> int:
        """The classes that lie in ``keys``, one of the sets given at construction."""
        return self._within[keys]

    def most(self, remaining: int) -> int:
        """How many members may still come."""
        return UNBOUNDED if self.rest else remaining.bit_count()

    def coming(self, remaining: int, needed: int) -> int:
        """The classes that may come next so that the needed ones still may come after: up to the first needed one."""
        awaited = needed & self._declared
        if awaited:
            return remaining & (2 * (awaited & -awaited) - 1) & self._declared
        return remaining

    def after(self, remaining: int, key_class: int) -> int:
        """The classes that may still come after a key of ``key_class``."""
        bit = 1 << key_class
        if bit & self._declared:
            return remaining & ~(2 * bit - 1 & self._declared)
        return remaining & ~self._declared & ~(bit & ~self.rest_bits)

    def after_in_order(self, remaining: int, key_class: int) -> int:
        """The same where all named keys come in order: enough to tell what some members can complete."""
        bit = 1 << key_class
        if bit & self.rest_bits:
            return self.after(remaining, key_class)
        return self.after(remaining, key_class) & ~(2 * bit - 1 & ~self.rest_bits)

    def _members(self, languages: Languages, keys: KeySet, vectors: tuple[frozenset[int], ...]) -> int:
        members = 0
        for name in keys.names:
            members |= 1 << self._class_of[name]
        if keys.languages:
            for name, key_class in self._class_of.items():
                if any(languages.contains(language, name) for language in keys.languages):
                    members |= 1 << key_class
            for index, vector in enumerate(vectors):
                if any(language in vector for language in keys.languages):
                    members |= 1 << index
        return self.all & ~members if keys.negated else members


def _parts(keys: Keys) -> tuple[KeySet, ...]:
    match keys:
        case KeySet():
            return (keys,)
        case Outside(sets):
            return sets
    return ()


def bits(mask: int) -> Iterator[int]:
    """The places of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _rest_classes(
    languages: Languages, names: tuple[str, ...], key_sets: tuple[KeySet, ...]
) -> tuple[tuple[int, ...], tuple[frozenset[int], ...], list[str]]:
    """Split the unnamed keys by the languages of ``key_sets``.

    Returns the formula of each class, the languages it lies in, and the keys of classes so small that these are named.
    """
    strings = languages.strings
    distinct = dict.fromkeys(language for keys in key_sets for language in keys.languages)
    if not distinct:
        return (TRUE,), (frozenset(),), []
    classes: list[tuple[int, frozenset[int]]] = [(strings.negate(languages.words(names)), frozenset())]
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
        words = languages.enumerated(formula, MAX_NAMED)
        if words is None:
            large.append((formula, vector))
        else:
            few += sorted(words)
    return tuple(formula for formula, _ in large), tuple(vector for _, vector in large), few
