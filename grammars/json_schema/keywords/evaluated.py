"""What the keywords of a schema have looked at, for unevaluatedProperties and unevaluatedItems.

Which members or items those are depends on which of the schemas that apply to the same value it is valid under. So
they are collected as *traces*: what is looked at, and the condition under which it is (2020-12 core, section 11).

Invariant: a trace's condition is a formula over the same object or array, and traces of a schema hold where it is
valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from grammars.json_schema.atoms import UNBOUNDED, KeySet, Outside
from grammars.json_schema.boolean import FALSE, TRUE, AtomT, Formulas
from grammars.json_schema.context import Context
from grammars.json_schema.shapes import Shape

MAX_CONDITIONS = 8
EVERY_KEY = KeySet(frozenset(), negated=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Under `condition`: members with keys in `keys`; the first `items` items, and items that meet one of `goals`."""

    condition: int = TRUE
    keys: tuple[KeySet, ...] = ()
    items: int = 0
    goals: tuple[int, ...] = ()


def unevaluated_properties(context: Context) -> Shape | None:
    """Members that no other keyword of the schema looked at are valid under a schema."""
    goal = context.goal("unevaluatedProperties")
    objects = context.values.objects

    def asked(traces: list[Trace]) -> int:
        looked_at = tuple(dict.fromkeys(keys for trace in traces for keys in trace.keys))
        return TRUE if EVERY_KEY in looked_at else objects.every(Outside(looked_at), goal)

    return Shape(object=_in_every_case(context, "unevaluatedProperties", objects.formulas, _object_part, asked))


def unevaluated_items(context: Context) -> Shape | None:
    """Items that no other keyword of the schema looked at are valid under a schema."""
    goal = context.goal("unevaluatedItems")
    arrays, goals = context.values.arrays, context.values.goals

    def asked(traces: list[Trace]) -> int:
        begin = max((trace.items for trace in traces), default=0)
        return arrays.every(begin, UNBOUNDED, goals.any_of([goal, *(g for trace in traces for g in trace.goals)]))

    return Shape(array=_in_every_case(context, "unevaluatedItems", arrays.formulas, _array_part, asked))


def _in_every_case(
    context: Context,
    keyword: str,
    formulas: Formulas[AtomT],
    part: Callable[[Shape], int],
    asked: Callable[[list[Trace]], int],
) -> int:
    """For every assignment of truth to the conditions of the traces: it implies what is asked under it."""
    traces = list(_traces(context, part, formulas, keyword))
    conditions = list(dict.fromkeys(trace.condition for trace in traces if trace.condition != TRUE))
    if len(conditions) > MAX_CONDITIONS:
        raise context.unsupported(keyword, f"depends on more than {MAX_CONDITIONS} schemas that may or may not apply")
    cases = []
    for truths in product((False, True), repeat=len(conditions)):
        holds = dict(zip(conditions, truths, strict=True)) | {TRUE: True}
        premise = [formulas.negate(c) if truth else c for c, truth in holds.items() if c != TRUE]
        cases.append(formulas.any_of([*premise, asked([trace for trace in traces if holds[trace.condition]])]))
    return formulas.all_of(cases)


def _traces(  # noqa: C901 - a list of keywords
    context: Context, part: Callable[[Shape], int], formulas: Formulas[AtomT], without: str = ""
) -> Iterator[Trace]:
    """The traces of a schema, those of keyword ``without`` aside."""
    schema = context.schema
    yield from _own_traces(context, without)
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in schema:
            context.referred(keyword)  # refuses what refers to itself in place
            yield from _traces_at(context.target(keyword), TRUE, part, formulas)
    for index in range(len(schema.get("allOf", ()))):
        context.shape("allOf", index)  # the same
        yield from _traces_at(context.inner("allOf", index), TRUE, part, formulas)
    for keyword in ("anyOf", "oneOf"):
        for index in range(len(schema.get(keyword, ()))):
            yield from _traces_at(context.inner(keyword, index), part(context.shape(keyword, index)), part, formulas)
    if "if" in schema:
        condition = part(context.shape("if"))
        yield from _traces_at(context.inner("if"), condition, part, formulas)
        for keyword, premise in (("then", condition), ("else", formulas.negate(condition))):
            if keyword in schema:
                yield from _traces_at(context.inner(keyword), premise, part, formulas)
    if part is _object_part:
        for keyword in ("dependentSchemas", "dependencies"):
            for name in schema.get(keyword, ()):
                if not isinstance(schema[keyword][name], list):
                    condition = context.values.objects.has(name)
                    yield from _traces_at(context.inner(keyword, name), condition, part, formulas)


def _traces_at(
    context: Context | None, condition: int, part: Callable[[Shape], int], formulas: Formulas[AtomT]
) -> Iterator[Trace]:
    if context is None or condition == FALSE:
        return
    for trace in _traces(context, part, formulas):
        both = formulas.all_of((condition, trace.condition))
        if both != FALSE:
            yield Trace(condition=both, keys=trace.keys, items=trace.items, goals=trace.goals)


def _own_traces(context: Context, without: str) -> Iterator[Trace]:
    schema = context.schema
    keys = [KeySet(frozenset(context.mapping("properties")))] if schema.get("properties") else []
    if schema.get("patternProperties"):
        patterns = context.mapping("patternProperties")
        keys.append(KeySet(frozenset(), tuple(context.pattern("patternProperties", p) for p in patterns)))
    if "additionalProperties" in schema or ("unevaluatedProperties" in schema and without != "unevaluatedProperties"):
        keys.append(EVERY_KEY)
    listed = schema.get("prefixItems", schema.get("items"))
    items = len(listed) if isinstance(listed, list) else 0
    is_listed = isinstance(schema.get("items"), list)
    if ("additionalItems" if is_listed else "items") in schema:
        items = UNBOUNDED
    if "unevaluatedItems" in schema and without != "unevaluatedItems":
        items = UNBOUNDED
    goals = (context.goal("contains"),) if "contains" in schema and context.document.dialect.contains_looks else ()
    yield Trace(keys=tuple(keys), items=items, goals=goals)


def _object_part(shape: Shape) -> int:
    return shape.object


def _array_part(shape: Shape) -> int:
    return shape.array
