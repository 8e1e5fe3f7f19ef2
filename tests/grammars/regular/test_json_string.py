"""JSON strings against the standard library's json module."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammars.regular import (
    ANY_TEXT,
    DEAD,
    build,
    chars,
    compile_regex,
    complement,
    concat,
    intersection,
    json_string,
    length,
    literal,
    star,
    tagged,
    union,
    words,
)

CHARACTERS = st.sampled_from('ab"\\/\b\f\n\r\t\0\x1f\x7f é\u2028\ud7ff\ue000\uffff😀\U0010ffff') | st.characters(
    exclude_categories=["Cs"]
)
TEXTS = st.text(CHARACTERS, max_size=4)
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _spellings(character: str) -> list[str]:
    """All legal spellings, by RFC 8259."""
    code = ord(character)
    units = [code] if code < 0x10000 else [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]
    found = ["".join(f"\\u{unit:04x}" for unit in units), "".join(f"\\u{unit:04X}" for unit in units)]
    if character in SHORT:
        found.append(SHORT[character])
    if code >= 0x20 and character not in '"\\':
        found.append(character)
    return found


LANGUAGES = st.sampled_from(
    [
        ANY_TEXT,
        length(1, 3),
        complement(literal("a")),
        star(chars('ab"\\\n/')),
        words(["a", 'b"', "\\", "\0é", "😀", "\U0010ffff\n"]),
        compile_regex(r"(?s)a.*|.*😀|[\x00-\x1f]+"),
        intersection(length(2, 4), complement(compile_regex("(?s).*a.*"))),
    ]
)


@given(LANGUAGES, TEXTS, st.data())
def test_every_spelling_of_a_word_and_of_no_other_text(language, text, data):
    spelled = '"' + "".join(data.draw(st.sampled_from(_spellings(c))) for c in text) + '"'
    assert json.loads(spelled) == text
    expected = build(language).matches(text.encode())
    assert build(json_string(language)).matches(spelled.encode()) == expected


@given(LANGUAGES, TEXTS, st.data())
def test_canonical_is_the_spelling_of_json_dumps(language, text, data):
    spelled = '"' + "".join(data.draw(st.sampled_from(_spellings(c))) for c in text) + '"'
    canonical = json.dumps(text, ensure_ascii=False)
    automaton = build(json_string(language, escapes="canonical"))
    expected = build(language).matches(text.encode()) and spelled == canonical
    assert automaton.matches(spelled.encode()) == expected
    assert automaton.matches(canonical.encode()) == build(language).matches(text.encode())


@given(LANGUAGES, st.sampled_from(["any", "canonical"]), st.integers(0, 2**32))
def test_words_decode_to_words(draw_word, language, escapes, seed):
    automaton = build(json_string(language, escapes=escapes))
    spelled = draw_word(automaton, random.Random(seed), 30).decode()
    text = json.loads(spelled)
    text.encode()
    assert build(language).matches(text.encode())


@pytest.mark.parametrize(
    "spelled",
    [
        r'"\ud83d"',
        r'"\ud83dx"',
        r'"\ud83d\n"',
        r'"\ud83d\u0041"',
        r'"\ude00"',
        r'"\ud83d\ud83d"',
        r'"\x41"',
        r'"\U0041"',
        r'"\u041"',
        '"\n"',
        '"a',
        'a"',
        '""x',
    ],
)
def test_illegal_spellings(spelled):
    assert not build(json_string(ANY_TEXT)).matches(spelled.encode())


@pytest.mark.parametrize("escapes", ["any", "canonical"])
def test_no_state_is_a_dead_end(reachable, escapes):
    """Languages in which some escapes lead nowhere: no place inside an escape may be entered in vain."""
    for language in (words(["ab"]), words(["\n", "/"]), chars("\U00010400"), literal(""), chars("\ud7ff\ue000")):
        automaton = build(json_string(language, escapes=escapes))
        for state in reachable(automaton, 400):
            assert automaton.accepting(automaton.walk(automaton.completion(state), state))


def test_half_a_pair_is_entered_only_where_the_other_half_can_follow():
    automaton = build(json_string(words(["\U0001f600", "é"])))
    assert automaton.walk(rb'"\ud83d\ude') != DEAD
    assert automaton.walk(rb'"\ud83c') == DEAD
    assert automaton.walk(rb'"\ud83d\udd') == DEAD
    assert automaton.walk(rb'"\u00e9"') != DEAD


def test_states_inside_escapes_are_few():
    """All of a block that leads to one text state is one state."""
    automaton = build(json_string(ANY_TEXT))
    for code in range(0, 0x110000, 0x111):
        if not 0xD800 <= code < 0xE000:
            automaton.walk(('"' + _spellings(chr(code))[0]).encode())
    assert automaton.num_states < 40


def test_composes_with_what_stands_around():
    member = concat(json_string(literal("k")), literal(": "), json_string(length(1)))
    automaton = build(union(tagged(1, member), tagged(2, json_string(ANY_TEXT))))
    assert automaton.tags(automaton.walk(b'"k": "v"')) == (1,)
    assert automaton.tags(automaton.walk(b'"k"')) == (2,)
    assert automaton.tags(automaton.walk(b'"k')) == ()
    assert automaton.tags(automaton.walk('"é'.encode()[:-1])) == ()


@given(st.lists(TEXTS, min_size=1, max_size=5, unique=True), TEXTS)
def test_tags_tell_every_language_that_a_key_is_in(keys, text):
    languages = [words(keys[i:]) for i in range(len(keys))] + [complement(words(keys)), length(0, 2)]
    automaton = build(union(*(tagged(i, json_string(x, escapes="canonical")) for i, x in enumerate(languages))))
    for word in (*keys, text):
        state = automaton.walk(json.dumps(word, ensure_ascii=False).encode())
        expected = tuple(i for i, x in enumerate(languages) if build(x).matches(word.encode()))
        assert automaton.tags(state) == expected
