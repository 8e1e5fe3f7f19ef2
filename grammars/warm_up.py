"""What the first requests would wait for: compiled loops are read from disk, rows that all schemas share are found.

Invariant: no answer depends on whether this ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from decoding.errors import ConstraintError, GrammarStateError
from grammars.json_schema.compile import JsonOptions, compile_json_schema
from grammars.matching.constraint import LazyGrammar
from grammars.matching.trie import TokenTrie

SCHEMA = """{
  "properties": {
    "word": {"enum": ["one", "other"]},
    "short": {"type": "string", "maxLength": 5},
    "text": {"type": "string"},
    "number": {"type": "number"},
    "count": {"type": "integer"},
    "set": {"type": "array", "uniqueItems": true, "items": {"enum": [1, 2, [3, 4], [3, 5]]}}
  }
}"""
TEXTS = (
    b"",
    b'{"wo',
    b'{"word":"',
    b'{"short":"a',
    b'{"text":"a',
    b'{"number":1',
    b'{"count":1',
    b'{"mine":1,"mi',
    b'{"mine":1,"',
    b'{"set":[1,',
    b'{"set":[[3,4],[3,',
    b'{"set":[1]}',
)
"""Beginnings after which every compiled loop has been needed."""

FORMATS = {
    "date": "2024-01-02",
    "date-time": "2024-01-02T03:04:05.678Z",
    "duration": "P1DT2H",
    "email": "first.last@example.com",
    "hostname": "www.example.com",
    "idn-email": "first.last@example.com",
    "ipv4": "192.168.0.1",
    "ipv6": "2001:db8::1",
    "iri": "https://www.example.com/a",
    "json-pointer": "/a/b",
    "regex": "a*",
    "relative-json-pointer": "1/a",
    "time": "03:04:05.678+01:00",
    "uri": "https://www.example.com/a/b?c=d#e",
    "uri-reference": "/a/b",
    "uri-template": "https://example.com/{a}",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""A text of each format: after its beginnings, rows are found once per vocabulary, and some take long."""


def warm_up(trie: TokenTrie) -> None:
    """Look for the rows after a few texts. A vocabulary that cannot spell JSON has none."""
    options = JsonOptions(characters=trie.characters)
    try:
        grammar = compile_json_schema(SCHEMA, options).bind(trie)
    except ConstraintError:  # nor can any request
        return
    _look(grammar, TEXTS)
    grammar.renewed()
    for name, example in FORMATS.items():
        schema = json.dumps({"type": "string", "format": name})
        beginnings = [f'"{example[:length]}'.encode() for length in range(len(example) + 1)]
        _look(compile_json_schema(schema, options).bind(trie), beginnings)


def _look(grammar: LazyGrammar, texts: Iterable[bytes]) -> None:
    for text in texts:
        with suppress(GrammarStateError):
            grammar.row_after(text)
