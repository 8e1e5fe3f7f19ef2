from __future__ import annotations

import json

import pytest

from tests.bench.grammar.failures import failures, markdown
from tests.bench.grammar.records import Outcome, Record, Status, Steps, Walked
from tests.bench.grammar.tasks import Instance, Task

NOTHING = Walked(outcomes=(), steps=Steps())
RIGHT = Record(name="x", status=Status.DONE, first=NOTHING, second=NOTHING)


def wrong(text, *, is_valid):
    walked = Walked(outcomes=(Outcome(is_valid=is_valid, accepted=not is_valid, where="at"),), steps=Steps())
    instance = Instance(text=text, is_valid=is_valid)
    return instance, Record(name="x", status=Status.DONE, first=walked, second=walked)


def reason(schema, instance, record, rerun):
    task = Task(name="x", group="y", schema=json.dumps(schema), instances=(instance,))
    (failure,) = failures([task], [record], rerun)
    return failure.reason


def never(task, *, in_any_order=False):
    return wrong("1", is_valid=True)[1]


def only_in_any_order(task, *, in_any_order=False):
    return RIGHT if in_any_order else never(task)


def only_respelled(task, *, in_any_order=False):
    return RIGHT if task.instances[0].text == "10.0" else never(task)


def only_without_unique_items(task, *, in_any_order=False):
    return RIGHT if "uniqueItems" not in task.schema.replace('"uniqueItems": {', "") else never(task)


@pytest.mark.parametrize(
    ("schema", "text", "is_valid", "rerun", "expected"),
    [
        ({"type": "string"}, "1", True, never, "jsonschema-rs says of the instance what we say"),
        ({"type": "integer"}, "1", False, never, "jsonschema-rs says of the instance what we say"),
        ({"type": "integer"}, "1", True, never, "unexplained"),
        ({"type": "string"}, "1", False, never, "unexplained"),
        ({"type": "string"}, "1", False, only_in_any_order, "unexplained"),
        ({"format": "idn-hostname"}, '"-"', False, never, "told to be unenforced: format"),
        ({"type": 0}, "1", True, never, "unexplained"),
        ({}, '{"a": 1}', True, only_in_any_order, "keys in an order that is not the schema's"),
        ({}, "1e1", True, only_respelled, "another spelling of a number or string is accepted"),
        (
            {"properties": {"uniqueItems": {"uniqueItems": True}}},
            "{}",
            True,
            only_without_unique_items,
            "accepted without uniqueItems",
        ),
        ({}, f"[{2**60}]", True, never, "a number that not every JSON parser reads back"),
    ],
)
def test_reasons_of_wrong_answers(schema, text, is_valid, rerun, expected):
    assert reason(schema, *wrong(text, is_valid=is_valid), rerun) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "ConstraintError: x: is impossible: no value",
            "no value is valid under the schema, which is what the compiler says",
        ),
        ("UnsupportedConstraintError: $ref 'a' is outside the schema", "refers to another document"),
        ("ConstraintError: x: is too deep", "refused: ConstraintError"),
    ],
)
def test_reasons_of_refusals(error, expected):
    record = Record(name="x", status=Status.REFUSED, error=error)
    assert reason({}, Instance(text="1", is_valid=True), record, never) == expected


def test_what_is_right_is_no_failure():
    task = Task(name="x", group="y", schema="{}", instances=())
    assert list(failures([task], [RIGHT], never)) == []


def test_the_list_counts_reasons_and_escapes_cells():
    instance, record = wrong("1", is_valid=True)
    task = Task(name="a|b*", group="y", schema="{}", instances=(instance,))
    text = markdown("command", {"File": list(failures([task], [record], never)), "Other": []})
    assert "* 1 valid refused: unexplained" in text
    assert r"| a\|b\* | valid refused | unexplained | at |" in text
    assert text.count("None.") == 1
