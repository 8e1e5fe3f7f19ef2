r"""The named keys of an object as a trie over their JSON spelling, laid over the automaton of the other keys.

Keys have one spelling each (RFC 8259: raw where legal, else the short escape, else ``\u00xx``), so that a key cannot
be repeated in disguise. Invariant: a name that must not come is in the trie too, marked, wherever other keys may come:
it would pass for one of them.
"""

from __future__ import annotations

import json

from grammars.json_schema.keys import KeyClasses
from grammars.json_schema.scalars import ScalarStates

FORBIDDEN = -1


class KeyTrie:
    """Nodes are numbered from 0, the state after the opening quote.

    Attributes:
        children: by node, the next node by byte.
        classes: by node, the class of the key that ends there, FORBIDDEN, or None where none does.
        is_open: by node, whether some key that may come ends at or below it.
        rest: index of the automaton of the other keys in `ScalarStates`, where some may come.
        start: its state after the opening quote, 0 where none may come.
    """

    def __init__(self, scalars: ScalarStates, classes: KeyClasses, allowed: tuple[int, ...]) -> None:
        offset = len(classes.rest)
        others = tuple(key_class for key_class in allowed if key_class < offset)
        named = {key_class for key_class in allowed if key_class >= offset}
        self.children: list[dict[int, int]] = [{}]
        self.classes: list[int | None] = [None]
        self.is_open = [bool(named)]
        for index, name in enumerate(classes.names):
            key_class = index + offset
            if key_class in named:
                self._add(name, key_class)
            elif others:
                self._add(name, FORBIDDEN)
        self.rest = 0
        self.start = 0
        if others:
            self.rest, self.start = scalars.keys(tuple((key_class, classes.rest[key_class]) for key_class in others))

    def _add(self, name: str, key_class: int) -> None:
        node = 0
        for byte in json.dumps(name, ensure_ascii=False)[1:-1].encode():
            child = self.children[node].get(byte)
            if child is None:
                child = self.children[node][byte] = len(self.children)
                self.children.append({})
                self.classes.append(None)
                self.is_open.append(False)
            node = child
            self.is_open[node] |= key_class != FORBIDDEN
        self.classes[node] = key_class
