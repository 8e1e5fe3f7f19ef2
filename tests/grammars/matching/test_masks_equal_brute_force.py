"""A row of a mask says of every token what reading its bytes one at a time says."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.tables import NO_OUTCOME, UNRESOLVED, Tables
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

SCHEMAS = [
    {},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"enum": ["ab", "aa", None]}, "ab": {}}, "additionalProperties": False},
    {"type": "array", "items": {"type": ["integer", "string"]}, "maxItems": 3},
    {"$defs": {"t": {"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "required": ["a"]},
    {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "object"}}, "minItems": 2},
    {"type": "string", "pattern": "^(ab|é)+$"},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "array", "items": {"type": "string", "minLength": 1}},
    {"type": "array", "items": {"enum": ["ab", "aab", "é", "\n", 10, 100]}},
    {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 1, "maxLength": 4}]},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "contains": {"maxLength": 1}, "minItems": 2},
    {"type": "object", "properties": {"a": {}, "ab": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
]


class Frame(NamedTuple):
    """One level of the twin's stack: a handler, the keys used so far above it, and the key being read."""

    handler: int
    used: frozenset[bytes] = frozenset()
    partial: bytes = b""


class SlowTwin:
    """The same states, read byte by byte, with a stack that is a tuple and keys remembered in it."""

    def __init__(self, source):
        self.tables = Tables()
        self.source = source
        state, bottom = source.start(self.tables)
        self.start = (state, (Frame(bottom),))

    def row(self, state):
        if not self.tables.is_built(state):
            self.source.expand(self.tables, state)
        return self.tables.rows[state], int(self.tables.final[state])

    def resolve(self, handler, outcome):
        index = self.tables.first_out_of[handler] + outcome
        if self.tables.resolved[index] == UNRESOLVED:
            entered = self.source.resolve(self.tables, handler, outcome)
            self.tables.resolved[index] = entered
        return int(self.tables.resolved[index])

    def read(self, state, stack, byte):
        row, final = self.row(state)
        code = int(row[byte])
        if code > 0:
            return code, self.grown(stack, byte)
        if code < 0:
            handler, target, outcome = self.tables.actions[-code].tolist()
            return (target, (*stack, Frame(handler))) if handler else self.popped(stack, outcome)
        if final == NO_OUTCOME or not stack:
            return None
        after = self.popped(stack, final)
        return after and self.read(*after, byte)

    def grown(self, stack, byte):
        if not stack or not self.tables.remembering_of[stack[-1].handler].outcomes:
            return stack
        return (*stack[:-1], stack[-1]._replace(partial=stack[-1].partial + bytes((byte,))))

    def popped(self, stack, outcome):
        *below, top = stack
        if outcome < self.tables.remembering_of[top.handler].outcomes:
            if top.partial in below[-1].used:
                return None
            below[-1] = below[-1]._replace(used=below[-1].used | {top.partial})
        return self.resolve(top.handler, outcome), tuple(below)

    def accepts(self, state, stack):
        for frame in reversed(stack):
            _, final = self.row(state)
            if final == NO_OUTCOME:
                return False
            state = self.resolve(frame.handler, final)
        return self.row(state)[1] != NO_OUTCOME

    def read_all(self, position, text):
        for byte in text:
            position = self.read(*position, byte)
            if position is None:
                return None
        return position


@pytest.mark.parametrize("whitespace", list(Whitespace))
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_every_row_along_random_walks(schema, whitespace, vocabulary: Vocabulary, trie: TokenTrie):
    constraint = compile_json_schema(schema, JsonOptions(whitespace=whitespace))
    grammar = constraint.bind(trie)
    draw = random.Random(1)
    for _ in range(4):
        twin = SlowTwin(constraint.language.source())
        matcher, position = grammar.matcher(), twin.start
        for _ in range(12):
            row = matcher.mask()
            expected = set()
            for token, text in enumerate(vocabulary.tokens):
                if text and twin.read_all(position, text) is not None:
                    expected.add(token)
            if twin.accepts(*position):
                expected.update(vocabulary.eos_ids)
            assert {token for token in range(len(row.bits_W) * 32) if token in row} == expected
            token = draw.choice(sorted(expected))
            matcher.advance(token)
            if matcher.is_finished:
                break
            position = twin.read_all(position, vocabulary.tokens[token])
