"""Masks of texts with several parts: token by token against byte by byte, and text by text against a plain parser."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from grammars.limits import ConstraintLimits
from grammars.structural.compile import compile_structured
from grammars.structural.spec import Reasoning
from grammars.structural.tools import ToolChoice
from tests.grammars.matching.test_masks_equal_brute_force import SlowTwin

CASES = {
    "free": lambda make: make.tags(*tags(make)),
    "bounded": lambda make: make.tags(*tags(make), least=1, most=2, after=False),
    "separated": lambda make: make.tags(
        tags(make)[0], make.tag("<b>", ("x", "xy"), "<"), before=False, between=False, separator=", "
    ),
    "text after": lambda make: make.tags(tags(make)[0], most=2, before=False, between=False, separator="-"),
    "trigger": lambda make: make.tags(*tags(make), triggers=("<",), least=1, most=1),
    "special": lambda make: make.tags(
        make.tag("[CALL]f:", '{"type":"object"}', "[OTHER]\n"), make.tag("<a>", "[a-z<]+", "[CALL]"), most=2
    ),
    "auto": lambda make: make.calls(),
    "required": lambda make: make.calls(choice=ToolChoice.REQUIRED, most=2),
    "none": lambda make: make.calls(choice=ToolChoice.NONE),
    "named": lambda make: make.calls(name="b", reasoning=Reasoning(end="</thought>")),
    "reasoning": lambda make: make.tags(tags(make)[0], reasoning=Reasoning(begin="<a>", end="</think>\n")),
}


def tags(make):
    return make.tag("<a>", "(ab|b|</?)*", "</a>"), make.tag("<b>", None, "</b>")


@pytest.mark.parametrize("name", CASES)
def test_rows_along_random_walks_are_what_reading_byte_by_byte_finds(name, make, compiled, legal, vocabulary):
    spec = CASES[name](make)
    constraint, _ = compile_structured(spec, vocabulary, ConstraintLimits())
    grammar = compiled(spec).grammar
    draw = random.Random(name)
    seen_long = 0
    for _ in range(3):
        twin = SlowTwin(constraint.language.source())
        matcher, position = grammar.matcher(), twin.start
        for _ in range(14):
            expected = [
                token
                for token, text in enumerate(vocabulary.readable)
                if text and twin.read_all(position, text) is not None
            ]
            expected += vocabulary.eos_ids if twin.accepts(*position) else ()
            assert legal(matcher) == sorted(expected)
            long = [token for token in expected if token >= 256]
            token = draw.choice(long or expected)
            seen_long += token in long
            matcher.advance(token)
            if matcher.is_finished:
                break
            position = twin.read_all(position, vocabulary.readable[token])
    assert seen_long


def complete_texts(grammar, alphabet: bytes, longest: int) -> set[str]:
    """Every text over an alphabet that the masks let come to its end."""
    found: set[str] = set()

    def visit(matcher, text: bytes) -> None:
        if matcher.is_accepting:
            found.add(text.decode())
        if len(text) < longest:
            row = matcher.mask()
            for byte in alphabet:
                if byte in row:
                    matcher.advance(byte)
                    visit(matcher, text + bytes((byte,)))
                    matcher.rollback(1)

    visit(grammar.matcher(), b"")
    return found


def is_tagged(text, *, content, least, most, before, between, after, separator=""):
    """Whether a text is free text and parts ``<`` content ``>``, read as one would by hand."""
    parts = 0
    while True:
        position = text.find("<")
        free, rest = (text, None) if position < 0 else (text[:position], text[position + 1 :])
        if rest is None:
            allowed = after if parts else before
            return parts >= least and (not free or allowed)
        if parts == most:
            return False
        if parts and not between:
            if free != separator:
                return False
        elif free and not (between if parts else before):
            return False
        inside, end, text = rest.partition(">")
        if not end or re.fullmatch(content, inside) is None:
            return False
        parts += 1


@pytest.mark.parametrize(("least", "most"), [(0, None), (1, 2), (2, 2), (0, 1)])
@pytest.mark.parametrize("places", list(itertools.product([True, False], repeat=3)), ids=str)
def test_short_texts_are_exactly_those_that_a_plain_parser_reads(places, least, most, make, compiled):
    before, between, after = places
    content, separator = "a?|>a|<", "" if between else "a"
    rules = {"least": least, "most": most, "before": before, "between": between, "after": after}
    spec = make.tags(make.tag("<", content, ">"), separator=separator, **rules)
    alphabet = "a<>"
    texts = ["".join(letters) for size in range(8) for letters in itertools.product(alphabet, repeat=size)]
    expected = {text for text in texts if is_tagged(text, content=content, separator=separator, **rules)}
    assert complete_texts(compiled(spec).grammar, alphabet.encode(), 7) == expected
    assert expected


def test_reasoning_ends_at_the_first_end_marker(make, compiled):
    spec = make.content("a*b?", reasoning=Reasoning(end="<a<"))
    texts = ["".join(letters) for size in range(9) for letters in itertools.product("ab<", repeat=size)]
    expected = {t for t in texts if "<a<" in t and re.fullmatch("a*b?", t.partition("<a<")[2])}
    assert complete_texts(compiled(spec).grammar, b"ab<", 8) == expected


def test_free_text_is_utf_8_and_may_end_between_characters_only(make, compiled, legal):
    matcher = compiled(make.tags(make.tag("é<", None, "."))).grammar.matcher()
    for text in ("é", "é東🌳"):
        for byte in text.encode():
            assert byte in legal(matcher)
            matcher.advance(byte)
        assert matcher.is_accepting
    matcher.advance(0xF0)
    assert not matcher.is_accepting
    assert set(legal(matcher)) <= set(range(0x90, 0xC0)) | set(range(256, 1000))
    assert 0xFF not in legal(compiled(make.tags(make.tag("<", None, "."))).grammar.matcher())
