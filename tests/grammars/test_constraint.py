from __future__ import annotations

import json
import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given

from decoding.errors import ConstraintError
from grammars.constraint import (
    ConstraintKind,
    ConstraintSpec,
    Formats,
    Notation,
    PropertyOrder,
    RegexDialect,
    Whitespace,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


SCHEMA_OPTIONS = {"property_order": PropertyOrder.ANY, "formats": Formats.ANNOTATE, "integral_floats": True}


def schema(text: str, **options: object) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text=text, **options)


def choices(*values: str, **options: object) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.CHOICES, values=values, **options)


def regex(text: str, **options: object) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.REGEX, text=text, **options)


def grammar(text: str, **options: object) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.GRAMMAR, text=text, **options)


def key(spec: ConstraintSpec, fingerprint: str = "v", backend: str = "espalier") -> str:
    return spec.key(fingerprint=fingerprint, backend=backend)


@given(JSON_VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_white_space_between_json_tokens_means_nothing(
    value: object, indent: int | str | None, ascii_only: bool
) -> None:
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    pretty = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert schema(pretty).normalised().text == compact


def test_order_of_properties_means_something() -> None:
    assert key(schema('{"a":1,"b":2}')) != key(schema('{"b":2,"a":1}'))


def test_order_of_choices_means_nothing() -> None:
    assert key(choices("a", "b")) == key(choices("b", "a"))


def test_options_that_a_kind_ignores_are_not_part_of_its_key() -> None:
    plain = choices("a")
    assert key(plain) == key(choices("a", whitespace=Whitespace.SPACED, best_effort=True))
    assert key(plain) == key(choices("a", **SCHEMA_OPTIONS, dialect=RegexDialect.ECMA))
    assert key(regex("a")) == key(regex("a", **SCHEMA_OPTIONS))
    assert key(schema("{}")) == key(schema("{}", dialect=RegexDialect.ECMA))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (key(schema("{}")), key(ConstraintSpec(kind=ConstraintKind.REGEX, text="{}"))),
        (key(schema("{}")), key(schema("{}", whitespace=Whitespace.FLEXIBLE))),
        (key(schema("{}")), key(schema("{}", best_effort=True))),
        (key(schema("{}")), key(schema("{}", property_order=PropertyOrder.ANY))),
        (key(schema("{}")), key(schema("{}", formats=Formats.ANNOTATE))),
        (key(schema("{}")), key(schema("{}", integral_floats=True))),
        (key(schema("{}", integral_floats=True)), key(schema("{}", best_effort=True))),
        (key(regex("a")), key(regex("a", dialect=RegexDialect.ECMA))),
        (key(grammar("a")), key(ConstraintSpec(kind=ConstraintKind.REGEX, text="a"))),
        (key(grammar("a")), key(grammar("a", notation=Notation.LARK))),
        (key(grammar("a")), key(grammar("a", start="a"))),
        (key(grammar("a")), key(grammar("a "))),
        (key(schema("{}")), key(schema("{}"), fingerprint="w")),
        (key(schema("{}")), key(schema("{}"), backend="outlines-core")),
        (key(choices("ab", "c")), key(choices("a", "bc"))),
        (
            key(ConstraintSpec(kind=ConstraintKind.REGEX, text="a b")),
            key(ConstraintSpec(kind=ConstraintKind.REGEX, text="ab")),
        ),
    ],
)
def test_whatever_changes_the_grammar_changes_the_key(left: str, right: str) -> None:
    assert left != right


@pytest.mark.parametrize("text", ['"' + '\\"' * 200_000, '"' * 200_001, "\\" * 400_000, '{"a":"b' + " " * 400_000])
def test_normalising_is_linear_on_malformed_text(text: str) -> None:
    assert schema(text).normalised().text == text  # backtracking would take hours


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((), "constraint.choices"),
        (("a", ""), "constraint.choices.values[1]"),
        (("a", "b", "a"), "constraint.choices.values[2]"),
        (("a", 7), "constraint.choices.values[1]"),
        ((None,), "constraint.choices.values[0]"),
        (("a", "\ud800"), "constraint.choices.values[1]"),
    ],
)
def test_wrong_choices_name_their_field(values: tuple[str, ...], field: str) -> None:
    with pytest.raises(ConstraintError, match=r"give|needs") as caught:
        choices(*values)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", [ConstraintKind.JSON_SCHEMA, ConstraintKind.REGEX])
@pytest.mark.parametrize("text", ["", "\udfff", 3, None])
def test_wrong_text_names_its_field(kind: ConstraintKind, text: str) -> None:
    with pytest.raises(ConstraintError, match="give") as caught:
        ConstraintSpec(kind=kind, text=text)
    assert caught.value.field == f"constraint.{kind.value}"


def test_specs_travel() -> None:
    spec = choices("a", "b")
    assert pickle.loads(pickle.dumps(spec)) == spec
