"""Formats against independent validators and the texts that define them."""

import base64
import datetime as dt
import ipaddress
import random
import re
import uuid

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammars.regular import build, compile_regex
from grammars.regular.formats import FORMATS, encodings, format_expression

EDITS = "0123456789aZ-:./%[]@ ~{}+T"


@pytest.fixture(scope="module")
def automata():
    return {name: build(format_expression(name)) for name in FORMATS}


def _validator(name):
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "format": name}
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def _edited(rng, word):
    letters = list(word)
    place = rng.randrange(len(letters) + 1)
    letters[place : place + rng.randrange(2)] = rng.choice(["", rng.choice(EDITS)])
    return "".join(letters)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_words_are_valid_for_another_validator(automata, draw_word, name):
    rng, validator = random.Random(name), _validator(name)
    for _ in range(120):
        word = draw_word(automata[name], rng, rng.choice([3, 10, 30, 60])).decode()
        assert validator.is_valid(word), word


REFUSED = {
    "duration": r"[0-9]{10}",  # at most nine digits a number
    "regex": r".*",  # only a regular part of it
    "idn-email": r".*",  # only some scripts
}
"""Where the language is smaller than the format: what the texts left out look like."""


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_near_misses_are_judged_alike(automata, draw_word, name):
    rng, validator = random.Random(name), _validator(name)
    for _ in range(400):
        text = _edited(rng, draw_word(automata[name], rng, rng.choice([3, 10, 30])).decode())
        if automata[name].matches(text.encode()) != validator.is_valid(text):
            assert name in REFUSED, text
            assert not automata[name].matches(text.encode()), text
            assert re.search(REFUSED[name], text, re.DOTALL), text


def _is_date(text):
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII)) and bool(dt.date.fromisoformat(text))
    except ValueError:
        return False


def test_every_day_of_some_years(automata):
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(33):
                text = f"{year:04}-{month:02}-{day:02}"
                assert automata["date"].matches(text.encode()) == _is_date(text), text
    assert not automata["date"].matches(b"0000-01-01")


def test_a_leap_second_is_at_midnight_in_utc(automata):
    for minute in range(0, 1440, 7):
        for offset in range(-1439, 1440, 31):
            clock = f"{minute // 60:02}:{minute % 60:02}:60"
            zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
            expected = (minute - offset) % 1440 == 1439
            assert automata["time"].matches((clock + zone).encode()) == expected
    assert automata["time"].matches(b"23:59:60.25Z")
    assert not automata["time"].matches(b"22:59:60Z")


def _parses(kind, text):
    try:
        kind(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("name", "kind"), [("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)])
def test_addresses(automata, draw_word, name, kind):
    rng = random.Random(3)
    for _ in range(500):
        word = draw_word(automata[name], rng, rng.choice([5, 20, 40])).decode()
        assert _parses(kind, word), word
        text = _edited(rng, word)
        assert automata[name].matches(text.encode()) == (_parses(kind, text) and "%" not in text), text


def test_uuids(automata):
    rng = random.Random(4)
    for _ in range(50):
        text = str(uuid.UUID(int=rng.getrandbits(128)))
        assert automata["uuid"].matches(text.encode())
        assert automata["uuid"].matches(text.upper().encode())
        assert not automata["uuid"].matches(text.replace("-", "").encode())


def test_regexes_compile_here_and_in_re(automata, draw_word):
    rng = random.Random(5)
    for _ in range(300):
        pattern = draw_word(automata["regex"], rng, 40).decode()
        re.compile(pattern)
        build(compile_regex(pattern, dialect="ecma"))


@pytest.mark.parametrize(
    ("name", "words", "others"),
    [
        ("date-time", ["1963-06-19T08:30:06.283185Z", "1990-12-31t15:59:59.123-08:00"],
         ["1990-02-31T15:59:59Z", "2024-01-01 00:00:00Z"]),
        ("time", ["08:30:06Z", "08:30:06+00:20"], ["24:00:00Z", "08:30:06", "8:30:06Z", "08:30:06+24:00"]),
        ("duration", ["P4DT12H30M5S", "P4Y", "PT0S", "P1M", "PT1M", "P2W"],
         ["P", "PT", "P1D2H", "P1YT", "4D", "P1Y2W"]),
        ("email",
         ["joe.bloggs@example.com", "te~st@example.com", '"joe bloggs"@example.com', "j@[127.0.0.1]", "j@[IPv6:::1]"],
         ["2962", ".t@example.com", "t.@example.com", "te..st@example.com", "j@[127.0.0.300]", "j@a=b.com", "j@"]),
        ("idn-email", ["실례@실례.테스트", "joe@example.com"], ["2962", "@"]),
        ("hostname", ["www.example.com", "h0stn4me", "1host", "a-b", "a" * 63, ".".join(["a" * 63] * 3 + ["a" * 61])],
         ["-a", "a-", "a..b", "a.", "_a", "a" * 64, ".".join(["a" * 63] * 4), "xn--X", "ab--cd", ""]),
        ("ipv4", ["192.168.0.1", "255.255.255.255"], ["256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4/24", "1.2.3.4.5"]),
        ("ipv6", ["::", "::1", "1::", "::42:ff:1", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1", "1:2::192.168.0.1"],
         ["12345::", "1:2:3:4:5:6:7:8:9", ":::", "1::2::3", "::1%eth0", "1:2:3:4:5:6:7", "::192.168.0.256"]),
        ("uri",
         ["http://foo.bar/?baz=qux#quux", "ftp://ftp.is.co.za/rfc/rfc1808.txt", "mailto:a@b.c", "urn:oasis:names",
          "ldap://[2001:db8::7]/c?o"],
         ["//foo.bar", "/abc", "\\\\WINDOWS", "abc", "http:// a", "bar,baz:foo", "http://a/%zz", "http://[::1"]),
        ("uri-reference", ["/abc", "#frag", "abc", "//foo.bar/x", "", "http://a/b"], ["\\\\W", "#a\\b", "a b", "%"]),
        ("iri", ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001::7]/a"], ["/abc", "âππ", "http://a b"]),
        ("uri-template", ["http://example.com/dictionary/{term:1}/{term}", "{+path,x*}/here", "plain"],
         ["{", "{a", "a}", "{a:0}", "{a:10000}"]),
        ("json-pointer", ["", "/foo/0", "/a~1b", "/ ", "/~0"], ["/~", "/~2", "#/a", "a"]),
        ("relative-json-pointer", ["0", "1/foo/bar", "120/x", "0#"], ["-1/a", "01/a", "/foo", "0##", ""]),
        ("regex", [r"([abc])+\s+$", r"^a{2,}[a-f]|b$", "", r"(?:x(y))?"], [r"^(abc]", "[", r"\1", "*"]),
    ],
)  # fmt: skip
def test_examples(automata, name, words, others):
    for word in words:
        assert automata[name].matches(word.encode()), word
    for word in others:
        assert not automata[name].matches(word.encode()), word


@given(st.binary(max_size=12), st.text("Aa0+/=Qw", max_size=9))
def test_base64_is_what_the_standard_library_encodes(data, text):
    automaton = build(encodings.base64())
    assert automaton.matches(base64.b64encode(data))
    try:
        canonical = base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        canonical = False
    assert automaton.matches(text.encode()) == canonical


def test_names():
    assert format_expression("no-such-format") is None
    assert format_expression("date") is format_expression("date")
