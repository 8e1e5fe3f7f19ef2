"""What is wrong with rules as a whole: names without a rule, rules without a text.

Invariant: of rules that pass, every one has a text, so that whatever a recogniser of prefixes accepts can be completed.
"""

from __future__ import annotations

from collections.abc import Mapping

from decoding.errors import ConstraintError
from grammars.context_free.syntax import FIELD, Choice, Node, Reference, Repeat, Sequence, Syntax, parts_of, references

_SHOWN = 8


def check_start(start: str, lines: Mapping[str, int]) -> None:
    """Raise ConstraintError where the start is none of the rules; ``lines`` tells where those stand."""
    if start not in lines:
        known = f"its rules are {_listed(list(lines))}" if lines else "it has no rules"
        raise ConstraintError(FIELD, f"has no rule {start!r} to start from; {known}")


def check_names(rules: Mapping[str, Node], lines: Mapping[str, int]) -> None:
    """Raise ConstraintError where a name in a rule has no rule."""
    for name, body in rules.items():
        for used in references(body):
            if used not in rules:
                raise ConstraintError(FIELD, f"uses the rule {used!r} in {_at(name, lines)}, but does not define it")


def check_productive(syntax: Syntax, lines: Mapping[str, int]) -> None:
    """Raise ConstraintError, naming them, where rules have no text because each needs itself.

    Rules without a line are not the caller's: they are named where no other is to blame.
    """
    productive = productive_rules(syntax.rules)
    barren = [name for name in syntax.rules if name not in productive]
    barren = [name for name in barren if name in lines] or barren
    if barren:
        others = f", nor in {_listed(barren[1:])}" if barren[1:] else ""
        raise ConstraintError(
            FIELD,
            f"never ends in the rule {_at(barren[0], lines)}{others}: every alternative needs the rule again;"
            " add one that ends",
        )


def productive_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that have a text. Work is linear in the size of the rules, as in Horn satisfiability."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for used in references(body):
            users[used].add(name)
    productive: set[str] = set()
    pending = list(rules)
    while pending:
        name = pending.pop()
        if name not in productive and _has_text(rules[name], productive):
            productive.add(name)
            pending += users[name]
    return productive


def _has_text(node: Node, productive: set[str]) -> bool:
    match node:
        case Reference(name=name):
            return name in productive
        case Choice(branches=branches):
            return any(_has_text(branch, productive) for branch in branches)
        case Repeat(least=0):
            return True
        case Sequence() | Repeat():
            return all(_has_text(part, productive) for part in parts_of(node))
        case _:
            return True


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _at(name: str, lines: Mapping[str, int]) -> str:
    return f"{name!r} (line {lines[name]})" if name in lines else repr(name)
