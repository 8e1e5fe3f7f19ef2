"""Why our engine was not right about a schema, and the list of all such schemas in Markdown.

Invariant: a reason rests on something that was tried (another order of keys, another spelling of the same value, the
schema without a keyword, another validator) or on what the engine itself says; what neither explains is unexplained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import jsonschema_rs

from grammars.json_schema.compile import JsonOptions, compile_json_schema
from tests.bench.grammar.figures import Verdict, accepts, is_told_impossible, verdict
from tests.bench.grammar.records import Record
from tests.bench.grammar.tasks import Instance, Task

_UNSUPPORTED = {
    "is outside the schema": "refers to another document",
    "$dynamicRef": "$dynamicRef that depends on the way by which it is reached",
    "$schema": "asks for a dialect that is not supported",
}
_BLAMED = ("uniqueItems", "format")
_DETAIL = 160
_EXACT = 2**53
"""Integers that every JSON parser reads back lie within this, either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One schema, its verdict, and why."""

    name: str
    verdict: Verdict
    reason: str
    detail: str


class Rerun(Protocol):
    """Run a schema once more, by the same engine or by the one that takes keys in any order."""

    def __call__(self, task: Task, *, in_any_order: bool = False) -> Record: ...


def failures(tasks: Sequence[Task], records: Sequence[Record], rerun: Rerun) -> Iterator[Failure]:
    """The failures among ``records``, which belong to ``tasks``."""
    for task, record in zip(tasks, records, strict=True):
        found = verdict(record)
        if found is not Verdict.RIGHT:
            reason, detail = _reason(found, task, record, rerun)
            yield Failure(name=task.name, verdict=found, reason=reason, detail=detail)


def _reason(found: Verdict, task: Task, record: Record, rerun: Rerun) -> tuple[str, str]:
    if found is Verdict.REFUSED:
        return _refusal(record), record.error.partition(": ")[2]
    if record.first is None or found is Verdict.TIMEOUT:
        return record.status.value, ""
    if found in (Verdict.BROKE_OFF, Verdict.UNSTEADY):
        return found.value, next((item.where for item in record.first.outcomes if item.accepted is None), "")
    pairs = zip(task.instances, record.first.outcomes, strict=True)
    wrong = [(instance, outcome) for instance, outcome in pairs if outcome.is_valid is not accepts(outcome)]
    instance, outcome = wrong[0]
    return _explained([instance for instance, _ in wrong], task, rerun), outcome.where or instance.text


def _explained(wrong: Sequence[Instance], task: Task, rerun: Rerun) -> str:
    """Why these instances, of which the engine says the opposite of what the file says."""
    if all(_validated(task, instance) is (not instance.is_valid) for instance in wrong):
        return "jsonschema-rs says of the instance what we say"
    if not all(instance.is_valid for instance in wrong):
        noted = sorted({keyword.keyword for keyword in compile_json_schema(task.schema, JsonOptions()).unenforced})
        return f"told to be unenforced: {', '.join(noted)}" if noted else "unexplained"
    if verdict(rerun(task, in_any_order=True)) is Verdict.RIGHT:
        return "keys in an order that is not the schema's"
    if verdict(rerun(replace(task, instances=tuple(map(_respelled, wrong))))) is Verdict.RIGHT:
        return "another spelling of a number or string is accepted"
    for keyword in _BLAMED:
        without = replace(task, instances=tuple(wrong), schema=json.dumps(_without(keyword, json.loads(task.schema))))
        if verdict(rerun(without)) is Verdict.RIGHT:
            return f"accepted without {keyword}"
    if all(_has_inexact_number(json.loads(instance.text)) for instance in wrong):
        return "a number that not every JSON parser reads back"
    return "unexplained"


def _respelled(instance: Instance) -> Instance:
    return replace(instance, text=json.dumps(json.loads(instance.text), ensure_ascii=False), ordered=None)


def _without(keyword: str, schema: object) -> object:
    """The schema without a keyword whose value is a boolean or a string, wherever it stands."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != keyword or isinstance(value, dict)}
        return {key: _without(keyword, value) for key, value in kept.items()}
    return [_without(keyword, part) for part in schema] if isinstance(schema, list) else schema


def _has_inexact_number(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_inexact_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_inexact_number, value))
    return isinstance(value, int | float) and abs(value) > _EXACT


def _refusal(record: Record) -> str:
    if is_told_impossible(record):
        return "no value is valid under the schema, which is what the compiler says"
    known = (reason for mark, reason in _UNSUPPORTED.items() if mark in record.error)
    return next(known, "refused: " + record.error.partition(":")[0])


def _validated(task: Task, instance: Instance) -> bool | None:
    """Another validator's word; None where it cannot read the schema."""
    try:
        validator = jsonschema_rs.validator_for(json.loads(task.schema), validate_formats=True)
        return validator.is_valid(json.loads(instance.text))
    except ValueError:
        return None


def markdown(command: str, found: Mapping[str, Sequence[Failure]]) -> str:
    """The list, by file, with counts by reason."""
    lines = ["# What espalier is not right about", "", f"Written by `{command}`; do not edit.", ""]
    for title, of_file in found.items():
        lines += [f"## {title}", ""]
        counts = Counter((failure.verdict, failure.reason) for failure in of_file)
        lines += [f"* {count} {kind.value}: {reason}" for (kind, reason), count in counts.most_common()] or ["None."]
        lines.append("")
        if of_file:
            lines += ["| schema | verdict | reason | where, or the message |", "|---|---|---|---|"]
            lines += [_row(failure) for failure in of_file]
            lines.append("")
    return "\n".join(lines)


def _row(failure: Failure) -> str:
    cells = (failure.name, failure.verdict.value, failure.reason, failure.detail[:_DETAIL])
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """A table's cell: no bars, no line ends, no mark-up."""
    plain = " ".join(text.split())
    return "".join(f"\\{char}" if char in "|\\`*_<>[]" else char for char in plain)
