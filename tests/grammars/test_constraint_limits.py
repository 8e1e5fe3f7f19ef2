from __future__ import annotations

import dataclasses
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from decoding.errors import ConstraintError, InvalidRequestError
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits

LIMITS = ConstraintLimits(
    text_bytes=1000, pattern_bytes=10, grammar_bytes=12, depth=5, nodes=20, choices=3, choice_bytes=8
)
JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{},:"\\a'),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(alphabet='[]{},"\\'), children, max_size=3)
    ),
    max_leaves=16,
)


def depth_and_nodes(value: object) -> tuple[int, int]:
    """The slow obvious twin; an empty container counts as if it held one value."""
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None:
        return 0, 1
    below = [depth_and_nodes(child) for child in children]
    return 1 + max((d for d, _ in below), default=0), 1 + (sum(n for _, n in below) if below else 1)


@given(JSON_VALUES)
def test_structure_is_counted_as_the_parsed_value_has_it(value: object) -> None:
    spec = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=json.dumps(value))
    depth, nodes = depth_and_nodes(value)
    ConstraintLimits(depth=max(depth, 1), nodes=nodes).check(spec)
    if depth > 1:
        with pytest.raises(ConstraintError, match="levels of nesting"):
            ConstraintLimits(depth=depth - 1).check(spec)
    if nodes > 1:
        with pytest.raises(ConstraintError, match="values"):
            ConstraintLimits(nodes=nodes - 1).check(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ConstraintSpec(kind=ConstraintKind.GRAMMAR, text="root ::= [é]"), "13 bytes; the limit is 12"),
        (ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text="[" * 1000), "levels of nesting; the limit is 5"),
        (ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text='"' + "é" * 500 + '"'), "1002 bytes; the limit is 1000"),
        (ConstraintSpec(kind=ConstraintKind.REGEX, text="a" * 11), "11 bytes; the limit is 10"),
        (ConstraintSpec(kind=ConstraintKind.CHOICES, values=("a", "b", "c", "d")), "4 choices; the limit is 3"),
        (ConstraintSpec(kind=ConstraintKind.CHOICES, values=("a", "é" * 5)), r"values\[1\]: has 10 bytes"),
    ],
)
def test_what_exceeds_a_limit_is_refused_by_name(spec: ConstraintSpec, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        LIMITS.check(spec)


def test_choices_are_bounded_together() -> None:
    spec = ConstraintSpec(kind=ConstraintKind.CHOICES, values=("aaaa", "bbbb", "cccc"))
    with pytest.raises(ConstraintError, match="together"):
        dataclasses.replace(LIMITS, text_bytes=11).check(spec)
    dataclasses.replace(LIMITS, text_bytes=12).check(spec)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ConstraintLimits)])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_above_zero(field: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        ConstraintLimits(**{field: value})
