"""Formulas over numbers against plain arithmetic on the numbers that texts spell."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammars.json_schema.arithmetic import MAX_DIGITS, DecimalMachine
from grammars.json_schema.boolean import FALSE, TRUE, Formulas
from grammars.json_schema.numeric import holds, number_expression
from grammars.json_schema.statements import Above, Canonical, Integral, MultipleOf, OneOf
from grammars.regular import build, from_machine

SMALL = st.decimals(min_value=-30, max_value=30, places=1).map(Decimal.normalize)
ATOMS = st.one_of(
    st.just(Integral(1)),
    st.builds(Above, SMALL, st.booleans()),
    st.sampled_from(["2", "3", "0.5", "0.25", "7"]).map(lambda text: MultipleOf(Decimal(text))),
    st.builds(OneOf, SMALL, st.just(1)),
)
NUMBERS = [
    sign + whole + fraction
    for sign in ("", "-")
    for whole in ("0", "1", "2", "3", "6", "7", "14", "21", "30", "31", "42", "1000000")
    for fraction in ("", ".0", ".5", ".25", ".3", ".75", ".0001")
]


@st.composite
def formulas(draw):
    numbers = Formulas()
    pool = [numbers.atom(draw(ATOMS)) for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 4))):
        chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
        join = draw(st.sampled_from([numbers.all_of, numbers.any_of, lambda parts: numbers.negate(parts[0])]))
        pool.append(join(chosen))
    return numbers, pool[-1]


def is_true(numbers, formula, text):
    return numbers.substitute(formula, lambda atom: int(holds(atom, Decimal(text))), {}) == TRUE


@settings(deadline=None)
@given(formulas())
def test_the_machine_accepts_just_the_decimals_of_which_a_formula_is_true(case):
    numbers, formula = case
    automaton = build(from_machine(DecimalMachine(numbers, formula)))
    for text in NUMBERS:
        assert automaton.matches(text.encode()) == is_true(numbers, formula, text), text


@settings(deadline=None)
@given(formulas())
def test_no_expression_spells_a_number_of_which_its_formula_is_false(case):
    numbers, formula = case
    if formula in (TRUE, FALSE):
        return
    automaton = build(number_expression(numbers, formula))
    for text in (*NUMBERS, "1e1", "-2E0", "3e-1"):
        if automaton.matches(text.encode()):
            assert is_true(numbers, formula, text), text


@settings(deadline=None)
@given(formulas())
def test_every_live_beginning_has_an_end(case):
    numbers, formula = case
    machine = DecimalMachine(numbers, formula)
    state = machine.start()
    for step in range(MAX_DIGITS + 3):
        if state is None or (step and machine.accepts(state)):
            return
        arcs = list(machine.arcs(state))
        assert arcs
        state = arcs[step % len(arcs)][1]
    raise AssertionError("a text without an end")


@pytest.mark.parametrize(
    ("text", "is_legal"), [("1.5", True), ("1.50", False), ("0", True), ("-0", False), ("-0.5", True)]
)
def test_canonical_numbers(text, is_legal):
    numbers = Formulas()
    formula = numbers.all_of([numbers.atom(Canonical()), numbers.negate(numbers.atom(OneOf(Decimal(7), 1)))])
    assert build(number_expression(numbers, formula)).matches(text.encode()) == is_legal
