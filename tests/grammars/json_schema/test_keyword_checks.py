"""The keyword checks of the shared grammar harness: what is known to differ is listed, everything else holds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from decoding.errors import ConstraintError
from grammars.constraint import Whitespace

DATA = Path(os.environ.get("ESPALIER_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
CHECKS = DATA.parent / "bench" / "grammar" / "micro.jsonl"

KNOWN = {
    "number bounds + exponent": "under bounds, exponents are written only where every number with them is within",
    "other key order": "declared keys come in their order",
    "unevaluatedProperties:false over allOf": "keys of a schema come before those of the schemas that it combines",
}


def test_every_check_but_the_known_ones(grammar_of, accepts):
    if not CHECKS.exists():
        pytest.skip(f"{CHECKS} is not there; set ESPALIER_TEST_DATA to the folder beside it")
    failed = set()
    checks = [json.loads(line) for line in CHECKS.read_text().splitlines()]
    for check in checks:
        try:
            grammar = grammar_of(check["text"], Whitespace.FLEXIBLE)
        except ConstraintError:
            failed.add(check["id"])
            continue
        if any(accepts(grammar, test["text"]) != test["valid"] for test in check["tests"]):
            failed.add(check["id"])
    assert failed == set(KNOWN)
    assert len(checks) == 83
