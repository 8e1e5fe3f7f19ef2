"""Vocabularies that cannot write every byte: what can be completed by bytes can be completed by tokens."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from typing import Literal

import pytest
from jsonschema import Draft202012Validator

from decoding.errors import ConstraintError
from grammars.characters import writable
from grammars.compiling.dispatch import compile_constraint
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie
from grammars.protocol import Grammar
from grammars.regular import (
    build,
    chars,
    compile_regex,
    complement,
    concat,
    intersection,
    json_string,
    literal,
    star,
    union,
    words,
)
from grammars.regular.charset import ANY, CharSet
from grammars.vocabulary import Vocabulary

EURO = "\u20ac"  # E2 82 AC
ASTRAL = "\U00050000"  # F1 90 80 80


def vocabulary_of(tokens: Iterable[bytes]) -> Vocabulary:
    texts = (*tokens, b"")
    return Vocabulary(
        tokens=texts, special_ids=frozenset((len(texts) - 1,)), eos_ids=(len(texts) - 1,), size=len(texts) + 2
    )


def lacking(*missing: int) -> Vocabulary:
    """All other bytes, and tokens that cross characters, some of them with the missing bytes."""
    longer = (b"ab", b'":', b'{"', b"\xe2\x82", b"\x82\xac", b"a\xf1", b"x\x04", b"\xf1\x90\x80\x80", b"\xac\xe2")
    return vocabulary_of([*(bytes((byte,)) for byte in range(256) if byte not in missing), *longer])


def test_all_bytes_are_all_characters() -> None:
    assert writable(lacking()) == ANY
    assert writable(lacking(0xC0, 0xC1, 0xF5, 0xFF)) == ANY


def test_a_character_needs_each_of_its_bytes_as_a_token() -> None:
    found = writable(lacking(0xAC, 0x04))
    assert ord("\x04") not in found  # "x\x04" alone has it
    assert ord(EURO) not in found  # E2 82 AC: after the token E2 82 nothing would go on
    assert ord("\u20ab") in found
    assert len(ANY - found) == 1 + sum(0xAC in chr(point).encode() for point in range(0xD800)) + sum(
        0xAC in chr(point).encode() for point in range(0xE000, 0x110000)
    )


def test_whole_characters_count_where_no_token_ends_inside_one() -> None:
    found = writable(vocabulary_of([b"a", b"b", "é".encode(), f"{EURO}b".encode()]))
    assert found == CharSet.of("abé")
    assert writable(vocabulary_of([b"a", b"b", "é".encode(), b"\xc3"])) == CharSet.of("ab")


@pytest.mark.parametrize("escapes", ["any", "canonical"])
@pytest.mark.parametrize("missing", [(0x9F,), (0x80, 0xAC, 0xF1), (0xBF, ord("x"))], ids=str)
def test_thousands_of_ranges_make_few_states(escapes: Literal["any", "canonical"], missing: tuple[int, ...]) -> None:
    kept = writable(lacking(*missing))
    assert len(kept.bounds) > 10_000
    automaton = build(json_string(star(chars(ANY)), escapes=escapes), characters=kept)
    state = 1
    while state < automaton.num_states:
        automaton.row(state)
        state += 1
    assert automaton.num_states < 200
    draw = random.Random(9)
    points = [draw.randrange(0x80, 0x110000) for _ in range(1500)] + [draw.randrange(0x80, 0x3000) for _ in range(1500)]
    for point in points:
        if 0xD800 <= point < 0xE000:
            continue
        character = chr(point)
        assert automaton.matches(f'"{character}"'.encode()) == (point in kept)
        assert automaton.matches(json.dumps(character).encode()) == (escapes == "any" or point not in kept)


EXPRESSIONS = {
    "class": star(chars(CharSet.span("a", EURO))),
    "complement": complement(compile_regex("a|x", search=True)),
    "look-ahead": compile_regex(f"(?!.*{EURO}b).*"),
    "look-behind": compile_regex(f".*(?<=[^a])[b{EURO}]"),
    "words": words(("ab", f"a{EURO}", f"{EURO}", "x", "xy", f"x{EURO}y", "aé")),
    "repeats": compile_regex(f"(?:[a{EURO}x]{{2,5}}b?)+"),
    "joined": concat(union(literal(EURO), literal("é")), compile_regex(".{0,3}")),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_characters_that_are_taken_out_are_taken_out_of_the_language(name: str) -> None:
    kept = ANY - CharSet.of(f"x{EURO}é") - CharSet.span("\u0800", "\u0fff")
    restricted = build(EXPRESSIONS[name], characters=kept)
    slow = build(intersection(EXPRESSIONS[name], star(chars(kept))))
    draw = random.Random(name)
    pairs = [(restricted.start, slow.start)]
    for _ in range(400):
        left, right = draw.choice(pairs)
        byte = draw.choice(b"abx\xe2\x82\xac\xc3\xa9\xe0\xa0\x80\xf0\x90")
        left, right = int(restricted.row(left)[byte]), int(slow.row(right)[byte])
        assert (left == 0) == (right == 0)
        if left:
            assert restricted.accepting(left) == slow.accepting(right)
            pairs.append((left, right))


@pytest.mark.parametrize("escapes", ["any", "canonical"])
def test_strings_escape_what_cannot_stand_raw(escapes: str) -> None:
    kept = ANY - CharSet.of(f"x{EURO}{ASTRAL}")
    language = json_string(
        compile_regex(f"[ax{EURO}{ASTRAL}é]"), escapes="canonical" if escapes == "canonical" else "any"
    )
    automaton = build(language, characters=kept)
    spelled = {"x": r"\u0078", EURO: r"\u20ac", ASTRAL: r"\ud900\udc00"}
    for raw, escaped in spelled.items():
        assert not automaton.matches(f'"{raw}"'.encode())
        assert automaton.matches(f'"{escaped}"'.encode())
    assert automaton.matches('"é"'.encode())
    assert automaton.matches(rb'"\u00e9"') == (escapes == "any")
    assert not automaton.matches(rb'"\u00ea"')


MISSING = (0x04, 0xE2, 0xF1, ord("x"))
SCHEMAS = (
    {"const": f"x{EURO}\u0004{ASTRAL}"},
    {"enum": ["x", EURO, ["x"], {"x": EURO}]},
    {"type": "string", "pattern": f"^[x{EURO}]{{2}}$"},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "a": {"type": "string"}},
        "required": ["x"],
        "additionalProperties": False,
    },
    {"type": "object", "patternProperties": {f"^{EURO}$": {"type": "null"}}, "minProperties": 1, "maxProperties": 2},
    {"type": "array", "uniqueItems": True, "minItems": 2, "maxItems": 3, "items": {"enum": ["x", EURO, "a"]}},
)


@pytest.fixture(scope="module")
def trie() -> TokenTrie:
    return TokenTrie.of(lacking(*MISSING))


def compiled(spec: ConstraintSpec, trie: TokenTrie) -> Grammar:
    return compile_constraint(spec, trie, limits=ConstraintLimits(), backend="espalier").grammar


def walked(grammar: Grammar, vocabulary: Vocabulary, seed: int) -> str:
    """A text drawn through the masks, shorter tokens preferred after a while."""
    matcher = grammar.matcher()
    draw = random.Random(seed)
    tokens: list[int] = []
    ends = b'"]}:,0'
    while True:
        row = matcher.mask()
        legal = [token for token in range(vocabulary.size) if token in row]
        assert legal
        if len(tokens) > 12:
            near = [t for t in legal if t in vocabulary.eos_ids or vocabulary.tokens[t][:1] in ends]
            legal = near or legal
        token = draw.choice(legal)
        matcher.advance(token)
        if matcher.is_finished:
            return vocabulary.join(tokens).decode()
        tokens.append(token)
        assert len(tokens) < 300


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_schemas_never_lead_to_a_dead_end(schema: object, trie: TokenTrie) -> None:
    grammar = compiled(ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=json.dumps(schema)), trie)
    for seed in range(12):
        text = walked(grammar, trie.vocabulary, seed)
        assert not set(text.encode()) & set(MISSING)
        Draft202012Validator(schema).validate(json.loads(text))  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [f"a|{EURO}|b", "[w-z]{2,4}", f"(a|{ASTRAL}b)*c", "[^a]{3}", "(?=.*b)[xb]+"])
def test_patterns_never_lead_to_a_dead_end(pattern: str, trie: TokenTrie) -> None:
    grammar = compiled(ConstraintSpec(kind=ConstraintKind.REGEX, text=pattern), trie)
    for seed in range(12):
        text = walked(grammar, trie.vocabulary, seed)
        assert not set(text.encode()) & set(MISSING)
        assert re.fullmatch(pattern, text)


def test_choices_that_cannot_be_written_are_left_out(trie: TokenTrie) -> None:
    grammar = compiled(ConstraintSpec(kind=ConstraintKind.CHOICES, values=("ab", "ax", EURO, "abé")), trie)
    assert {walked(grammar, trie.vocabulary, seed) for seed in range(12)} == {"ab", "abé"}


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (ConstraintKind.REGEX, f"a{EURO}b", ()),
        (ConstraintKind.REGEX, "x+|\x04", ()),
        (ConstraintKind.CHOICES, "", ("x", ASTRAL)),
    ],
)
def test_what_becomes_empty_is_refused_by_name(
    kind: ConstraintKind, text: str, values: tuple[str, ...], trie: TokenTrie
) -> None:
    spec = ConstraintSpec(kind=kind, text=text, values=values)
    with pytest.raises(ConstraintError, match=r"vocabulary lacks tokens") as refusal:
        compiled(spec, trie)
    assert refusal.value.field == spec.field


def test_a_schema_needs_the_characters_of_json() -> None:
    spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text='{"type": "null"}')
    with pytest.raises(ConstraintError, match=r"no token for '\{'"):
        compiled(spec, TokenTrie.of(lacking(ord("{"))))
