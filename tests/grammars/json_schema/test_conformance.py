"""The official conformance suite (JSON-Schema-Test-Suite): nothing invalid is accepted, and how much is right."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.constraint import Whitespace
from grammars.json_schema.compile import JsonOptions, PropertyOrder, compile_json_schema

DATA = Path(os.environ.get("ESPALIER_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
NOTES = {"format.json", "content.json"}
"""Files that hold these keywords to be notes, which is an option of ours."""
RIGHT = {"draft2020-12": 0.93, "draft7": 0.92}
"""Shares of groups outside `optional/` that must be right; what is missing is refused by name."""


@pytest.mark.parametrize("draft", DRAFTS)
def test_groups(draft, trie, accepts):
    path = DATA / f"json-schema-test-suite-{draft}.json"
    if not path.exists():
        pytest.skip(f"{path} is not there; set ESPALIER_TEST_DATA to the folder that has it")
    counts: Counter[str] = Counter()
    wrong = []
    for group in json.loads(path.read_text()):
        if group["file"].startswith("optional/"):
            continue
        verdict = judged(group, draft, trie, accepts)
        counts[verdict] += 1
        if verdict == "over":
            wrong.append((group["file"], group["group"]))
    assert not wrong, "invalid instances are accepted"
    assert set(counts) <= {"right", "under", "refused"}
    assert counts["right"] >= RIGHT[draft] * counts.total(), counts


def judged(group, draft, trie, accepts):
    schema = group["schema"]
    if isinstance(schema, dict):
        schema = {"$schema": DRAFTS[draft], **schema}
    options = JsonOptions(
        whitespace=Whitespace.FLEXIBLE,
        property_order=PropertyOrder.ANY,
        integral_floats=True,
        assert_formats=group["file"] not in NOTES,
    )
    try:
        grammar = compile_json_schema(schema, options).bind(trie)
    except UnsupportedConstraintError as error:
        return "refused" if error.pointer else "refused without a place"
    except ConstraintError as error:
        if "impossible" not in error.message:
            return "wrongly blamed"
        return "right" if not any(test["valid"] for test in group["tests"]) else "under"
    verdicts = {
        (test["valid"], accepts(grammar, json.dumps(test["data"], ensure_ascii=False))) for test in group["tests"]
    }
    if (False, True) in verdicts:
        return "over"
    return "under" if (True, False) in verdicts else "right"
