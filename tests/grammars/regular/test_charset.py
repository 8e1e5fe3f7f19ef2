"""Sets of code points against Python's sets."""

from hypothesis import given
from hypothesis import strategies as st

from grammars.regular.alphabet import Alphabet
from grammars.regular.charset import ANY, NONE, CharSet

EDGES = [0, 1, 0x7F, 0x80, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x10FFFE, 0x10FFFF]
POINTS = st.sampled_from(EDGES) | st.integers(0, 300)
RANGES = st.lists(st.tuples(POINTS, POINTS), max_size=4)
PROBES = sorted({*EDGES, *range(302)})


def _twin(ranges):
    return {c for c in PROBES if not 0xD800 <= c < 0xE000 and any(first <= c <= last for first, last in ranges)}


@given(RANGES, RANGES)
def test_operators(left, right):
    one, other = CharSet.from_ranges(left), CharSet.from_ranges(right)
    mine, theirs = _twin(left), _twin(right)
    scalars = {c for c in PROBES if not 0xD800 <= c < 0xE000}
    for charset, expected in [
        (one, mine),
        (one | other, mine | theirs),
        (one & other, mine & theirs),
        (one - other, mine - theirs),
        (~one, scalars - mine),
    ]:
        assert {c for c in PROBES if c in charset} == expected
        assert list(charset.bounds) == sorted(set(charset.bounds))
        assert bool(charset) == (charset.bounds != ())


def test_sizes():
    assert len(ANY) == 0x110000 - 0x800
    assert len(NONE) == 0
    assert len(CharSet.of("abca")) == 3
    assert CharSet.span("a", "c").ranges() == [(97, 99)]


@given(st.lists(RANGES, max_size=4))
def test_minterms_tell_classes_apart_and_nothing_else(many):
    classes = [CharSet.from_ranges(ranges) for ranges in many]
    alphabet = Alphabet(classes)
    seen = {}
    for c in PROBES:
        if 0xD800 <= c < 0xE000:
            assert alphabet.run(c)[0] == -1
            continue
        minterm = alphabet.run(c)[0]
        membership = tuple(c in charset for charset in classes)
        assert seen.setdefault(minterm, membership) == membership
        assert alphabet.within(c, c) == 1 << minterm
        assert alphabet.run(alphabet.run(c)[1])[0] == minterm
        for charset, inside in zip(classes, membership, strict=True):
            assert bool(alphabet.guard(charset) >> minterm & 1) == inside
    for charset in classes:
        guard = alphabet.guard(charset)
        assert set(alphabet.ascii_bytes(guard).tolist()) == {c for c in range(128) if c in charset}
