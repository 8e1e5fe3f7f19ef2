from __future__ import annotations

import dataclasses
import json

import pytest

from service.cli import explain
from service.client import EnforcedKeyword, Explanation, UnenforcedKeyword
from service.v1 import common_pb2, constraint_pb2

EXPLAINED = Explanation(
    normalised='{"type":"null","x":1}',
    enforced=(EnforcedKeyword(pointer="/type", keyword="type"),),
    unenforced=(UnenforcedKeyword(pointer="/x", keyword="x", reason="asserts nothing"),),
    states=1234,
    size_bytes=56789,
    shortest="null",
    shortest_tokens=2,
)


@pytest.fixture
def served(server):
    plain = dataclasses.asdict(EXPLAINED)
    plain["enforced"] = [constraint_pb2.EnforcedKeyword(**item) for item in plain["enforced"]]
    plain["unenforced"] = [common_pb2.UnenforcedKeyword(**item) for item in plain["unenforced"]]
    server.play("Explain", constraint_pb2.ExplainResponse(**plain))
    return server


def test_json_has_every_field(served, capsys):
    flags = ["--json", "--address", served.address, "--schema", EXPLAINED.normalised, "--whitespace", "spaced"]
    assert explain.main([*flags, "--best-effort", "--model", "m"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(dataclasses.asdict(EXPLAINED)))
    (sent,) = served.requests
    assert sent.model == "m"
    assert sent.constraint == common_pb2.Constraint(
        json_schema=EXPLAINED.normalised, whitespace=common_pb2.WHITESPACE_POLICY_SPACED, best_effort=True
    )


def test_the_text_says_the_same(served, capsys):
    assert explain.main(["--address", served.address, "--regex", "a"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["normalised", EXPLAINED.normalised],
        ["states", "1,234, 56,789 bytes"],
        ["shortest", "null"],
        ["its", "tokens    2"],
        ["enforced", "/type"],
        ["not", "enforced  /x: asserts nothing"],
    ]


def test_a_constraint_is_needed(server, capsys):
    assert explain.main(["--address", server.address]) == 1
    assert "constraint: is missing" in capsys.readouterr().err
