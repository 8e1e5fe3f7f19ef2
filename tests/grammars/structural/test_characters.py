"""Vocabularies that cannot write every byte: free text and parts never lead to where no token goes on."""

from __future__ import annotations

import random

import pytest

from decoding.errors import ConstraintError
from grammars.characters import writable
from grammars.compiling.dispatch import compile_constraint
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.constraint import LazyGrammar
from grammars.matching.trie import TokenTrie
from grammars.regular.charset import ANY, CharSet
from grammars.structural.scanner import START, Found, Place, Scanner
from grammars.structural.spec import Reasoning
from grammars.vocabulary import Vocabulary
from tests.grammars.structural.conftest import Make

EURO = "\u20ac"  # E2 82 AC
ASTRAL = "\U00050000"  # F1 90 80 80
MISSING = frozenset((0x04, 0xE2, 0xF1, 0x9F, ord("x")))
LONGER = (
    b"\xe2\x82",
    b"\x82\xac",
    b"a\xf1",
    b"x<a>",
    b"<a",
    b"\xf1\x90\x80\x80",
    b"</a>\xe2",
    b"\xc3",
    b"a\xed",
    b"ok</t",
)


@pytest.fixture(scope="module")
def poor() -> TokenTrie:
    singles = (bytes((byte,)) for byte in range(256) if byte not in MISSING)
    tokens = (*singles, *LONGER, b"", b"")
    eos, think = len(tokens) - 2, len(tokens) - 1
    return TokenTrie.of(
        Vocabulary(
            tokens=tokens,
            special_ids=frozenset((eos, think)),
            eos_ids=(eos,),
            size=len(tokens) + 1,
            special_text=((eos, "<|end|>"), (think, "</thought>")),
        )
    )


def grammar_of(spec: ConstraintSpec, trie: TokenTrie) -> LazyGrammar:
    grammar = compile_constraint(spec, trie, limits=ConstraintLimits(), backend="espalier").grammar
    assert isinstance(grammar, LazyGrammar)
    return grammar


ANY_OBJECT = {"kind": ConstraintKind.JSON_OBJECT}
SPECS = {
    "text": Make.tags(Make.tag("<a>", f"[w-z{EURO}b]{{2}}", "</a>"), least=1),
    "choices": Make.tags(Make.tag("<a>", ("x", f"b{EURO}", "ab", "\u00e9"), "</a>"), least=1, max_text_tokens=5),
    "special": Make.tags(Make.tag("<a>", "[^b]*", "</thought>"), least=1),
    "object": Make.tags(
        Make.tag("<a>", f'{{"const":{{"x":"{EURO}","a":"{ASTRAL}"}}}}', "</a>"), least=1, max_text_tokens=3
    ),
    "reasoning": ConstraintSpec(
        kind=ConstraintKind.REGEX, text=f"[x{EURO}ab]+", reasoning=Reasoning(end="</think>", max_tokens=8)
    ),
    "thought": ConstraintSpec(reasoning=Reasoning(begin="<a>", end="</thought>"), **ANY_OBJECT),
}


@pytest.mark.parametrize("name", SPECS)
def test_no_walk_comes_to_a_dead_end(name: str, poor: TokenTrie) -> None:
    vocabulary = poor.vocabulary
    grammar = grammar_of(SPECS[name], poor)
    first = range(len(vocabulary.tokens) - len(LONGER) - 2, len(vocabulary.tokens))
    draw = random.Random(name)
    begun = 0
    for _ in range(12):
        matcher = grammar.matcher()
        text = b""
        for _ in range(60):
            row = matcher.mask()
            legal = [token for token in range(vocabulary.size) if token in row]
            assert legal
            rare = [token for token in legal if token in first or vocabulary.tokens[token][:1] >= b"\x80"]
            token = draw.choice(rare if rare and draw.random() < 0.6 else legal)
            matcher.advance(token)
            if matcher.is_finished:
                break
            text += vocabulary.tokens[token]
        assert not MISSING & set(text)
        begun += any(byte >= 0x80 for byte in text)
    assert begun


def completable(scanner: Scanner, place: Place) -> bool:
    return place.is_whole or any(
        isinstance(after, Found) or completable(scanner, after) for _, after in scanner.steps(place)
    )


@pytest.mark.parametrize("kept", [ANY, ANY - CharSet.of(f"x{EURO}\u00e9"), CharSet.span("a", "\u00ff"), None], ids=str)
def test_free_text_is_text_of_the_characters(kept: CharSet | None, poor: TokenTrie) -> None:
    characters = writable(poor.vocabulary) if kept is None else kept
    scanner = Scanner([b"ab"], [b"abc", b"aa"], characters=characters)
    draw = random.Random(5)
    points = [*b"abcx\x04", ord("\u00e9"), ord(EURO), 0xD7FF, 0xE000, ord(ASTRAL), 0x10FFFF]
    points += [draw.randrange(0x110000) for _ in range(300)]
    for point in points:
        if 0xD800 <= point < 0xE000:
            continue
        places: list[Place] = [START]
        for byte in chr(point).encode():
            after = dict(scanner.steps(places[-1])).get(byte)
            assert not isinstance(after, Found)
            if after is None:
                break
            assert completable(scanner, after)
            places.append(after)
        assert (len(places) > 1 and places[-1].is_whole) == (point in characters)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (Make.tags(Make.tag("<x>", "a", "b")), "structural_tags.tags[0].begin", "holds 'x', for which"),
        (Make.tags(Make.tag("<a>", "a", f"b{EURO}")), "structural_tags.tags[0].end", "use another marker"),
        (Make.tags(Make.tag("<a>", f"x|a{EURO}", "b")), "regex", "vocabulary lacks tokens"),
        (Make.tags(Make.tag("<a>", ("x", EURO), "b")), "choices", "vocabulary lacks tokens"),
        (
            ConstraintSpec(reasoning=Reasoning(end="</x></thought>"), **ANY_OBJECT),
            "reasoning.end",
            "holds 'x', for which",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(spec: ConstraintSpec, field: str, message: str, poor: TokenTrie) -> None:
    with pytest.raises(ConstraintError, match=message) as refusal:
        grammar_of(spec, poor)
    assert refusal.value.field == f"constraint.{field}"
