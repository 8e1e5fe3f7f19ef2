"""Bounded numbers against exact arithmetic."""

import json
import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.regular import build
from grammars.regular.numbers import SAFE_INTEGER, UNBOUNDED, Bounds, exact, integer, number, short_decimal

REALS = st.integers(-300, 300) | st.decimals(-30, 30, places=2) | st.floats(-30, 30).map(lambda x: round(x, 1))
DIVISORS = st.sampled_from([1, 2, 3, 7, 10, 25, Decimal("0.5"), Decimal("0.01"), 1.5, Decimal("0.25"), 0.1])
BOUNDS = st.builds(
    Bounds,
    minimum=st.none() | REALS,
    maximum=st.none() | REALS,
    exclusive_minimum=st.none() | st.none() | REALS,
    exclusive_maximum=st.none() | st.none() | REALS,
    multiple_of=st.none() | DIVISORS,
)
PLAIN = [
    f"{sign}{whole}{part}"
    for sign in ("", "-")
    for whole in range(312)
    for part in ("", ".0", ".5", ".25", ".10", ".001")
]
NOT_NUMBERS = [
    "",
    "-",
    ".",
    "1.",
    ".5",
    "00",
    "01",
    "-00",
    "1e",
    "1.e1",
    "1e+",
    "+1",
    "1..0",
    "-.1",
    "--1",
    "1 ",
    "1.0.0",
    "0x1",
]


def _holds(bounds, value: Fraction) -> bool:
    return (
        (bounds.minimum is None or value >= exact(bounds.minimum))
        and (bounds.maximum is None or value <= exact(bounds.maximum))
        and (bounds.exclusive_minimum is None or value > exact(bounds.exclusive_minimum))
        and (bounds.exclusive_maximum is None or value < exact(bounds.exclusive_maximum))
        and (bounds.multiple_of is None or (value / exact(bounds.multiple_of)).denominator == 1)
    )


@given(BOUNDS, st.integers(0, 2))
def test_integers(bounds, zeros):
    automaton = build(integer(bounds, zeros=zeros))
    for text in PLAIN:
        fraction = text.partition(".")[2]
        spelled = len(fraction) <= zeros and not fraction.strip("0")
        assert automaton.matches(text.encode()) == (spelled and _holds(bounds, Fraction(text))), text


@given(BOUNDS)
def test_numbers(bounds):
    automaton = build(number(bounds, fraction_digits=3))
    for text in PLAIN:
        assert automaton.matches(text.encode()) == _holds(bounds, Fraction(text)), text
    assert not any(automaton.matches(text.encode()) for text in NOT_NUMBERS)


@given(BOUNDS, st.integers(0, 2**32), st.booleans())
def test_words_keep_the_bounds_and_no_digit_leads_nowhere(draw_word, bounds, seed, is_integer):
    automaton = build(integer(bounds) if is_integer else number(bounds))
    if automaton.is_empty:
        return
    for turn in range(5):
        text = draw_word(automaton, random.Random(seed + turn), 25).decode()
        assert _holds(bounds, Fraction(text)), text
        assert isinstance(json.loads(text), int) or not is_integer


@given(
    st.integers(-(10**25), 10**25),
    st.integers(0, 10**25),
    st.none() | st.integers(1, 10**24),
    st.integers(0, 2**32),
)
def test_big_bounds(draw_word, low, width, divisor, seed):
    """Emptiness follows from arithmetic; no interval is searched number by number."""
    bounds = Bounds(minimum=low, maximum=low + width, multiple_of=divisor)
    automaton = build(integer(bounds))
    step = divisor or 1
    assert automaton.is_empty == (-(-low // step) * step > low + width)
    for value in (low, low + width, low - 1, low + width + 1, -(-low // step) * step):
        assert automaton.matches(str(value).encode()) == _holds(bounds, Fraction(value))
    if not automaton.is_empty:
        assert _holds(bounds, Fraction(draw_word(automaton, random.Random(seed), 30).decode()))


def test_states_do_not_grow_with_the_width_of_the_bounds(reachable):
    assert len(reachable(build(integer(Bounds(minimum=123_456_789, maximum=987_654_321_987))), 1000)) < 60


@pytest.mark.parametrize(
    ("bounds", "words", "others"),
    [
        (UNBOUNDED, ["0", "-0", "1e5", "1.5E-05", "12.25e+20", "1e280"], ["1e281", "1e999", "01", "1e5.0"]),
        (Bounds(minimum=0), ["1e-05", "2.5e+20", "0.00001"], ["-1e-05", "-1"]),
        (Bounds(exclusive_minimum=0), ["1e-05", "0.1"], ["0", "0.0", "0e1"]),
        (Bounds(minimum=0, maximum=1), ["1e-05", "9.9e-1", "1.0"], ["1e1", "2"]),
        (Bounds(maximum=-5), ["-1e2", "-5", "-2.5e+3"], ["-1e-05", "1e2", "-4.9"]),
        (Bounds(multiple_of=2), ["4"], ["1e2", "4e0"]),
    ],
)
def test_exponents(bounds, words, others):
    automaton = build(number(bounds))
    for word in words:
        assert automaton.matches(word.encode()), word
    for word in others:
        assert not automaton.matches(word.encode()), word


def test_every_shortest_text_of_a_double_without_overflow():
    automaton, bounded = build(number()), build(number(Bounds(minimum=-(10.0**275))))
    rng = random.Random(0)
    for _ in range(2000):
        text = json.dumps(rng.uniform(-1, 1) * 10.0 ** rng.randint(-250, 250))
        assert automaton.matches(text.encode()), text
        assert bounded.matches(text.encode()), text


def test_defaults_keep_integers_exact_and_digits_few():
    automaton = build(integer())
    for value in (SAFE_INTEGER, -SAFE_INTEGER, 0):
        assert automaton.matches(str(value).encode())
    assert not automaton.matches(str(SAFE_INTEGER + 1).encode())
    assert build(integer(Bounds(minimum=2**63))).matches(str(2**63).encode())
    assert build(integer(Bounds(maximum=-(2**70)))).matches(str(-(2**70)).encode())
    assert build(number()).walk(b"1" * 21) == 0
    assert build(number()).walk(b"1." + b"1" * 21) == 0


@given(REALS, st.integers(0, 2**32))
def test_exclusive_bounds_hold_for_the_doubles_that_are_read(draw_word, bound, seed):
    above, below = build(number(Bounds(exclusive_minimum=bound))), build(number(Bounds(exclusive_maximum=bound)))
    nearest = f"{Decimal(float(bound)):f}"
    for text in (nearest, nearest + ("" if "." in nearest else ".") + "0001", f"{float(bound) - 1e-15:.20f}"):
        if above.matches(text.encode()):
            assert float(text) > float(bound)
        if below.matches(text.encode()):
            assert float(text) < float(bound)
    rng = random.Random(seed)
    for _ in range(10):
        assert float(draw_word(above, rng, 40)) > float(bound)
        assert float(draw_word(below, rng, 40)) < float(bound)
    neighbours = (math.nextafter(float(bound), math.inf), math.nextafter(float(bound), -math.inf))
    for value, automaton in zip(neighbours, (above, below), strict=True):
        if "e" not in repr(value):
            assert automaton.matches(repr(value).encode())


@given(st.integers(0, 2**32))
def test_short_decimals_are_read_as_what_they_are(draw_word, seed):
    text = draw_word(build(short_decimal()), random.Random(seed), 25).decode()
    assert Fraction(text).denominator == 1 or not float(text).is_integer()
    assert sum(character.isdigit() for character in text) <= 15


def test_short_decimals():
    automaton = build(short_decimal(4))
    for text in PLAIN:
        assert automaton.matches(text.encode()) == (sum(map(str.isdigit, text)) <= 4), text
    assert not any(automaton.matches(text.encode()) for text in NOT_NUMBERS)


def test_refusals():
    with pytest.raises(ConstraintError, match="not positive"):
        Bounds(multiple_of=0)
    with pytest.raises(UnsupportedConstraintError, match="decimal places"):
        number(Bounds(minimum=Fraction(1, 3)))
    with pytest.raises(UnsupportedConstraintError, match="decimal places"):
        number(Bounds(multiple_of=Decimal("1e-100")))
