"""Rules that refer to themselves at one end only, as repetitions.

``a ::= x a | y`` has the texts of ``x* y``, and ``a ::= a x | y`` those of ``y x*``. As repetitions they can become
part of a terminal, and llguidance need not keep every level of them: it follows right recursion 2,000 levels deep.

Invariant: the texts stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from grammars.context_free.syntax import Choice, Node, Reference, Repeat, Sequence, references


def repetitions(rules: Mapping[str, Node]) -> dict[str, Node]:
    """The same rules, those that only begin or only end in themselves without recursion."""
    return {name: _repeated(name, body) for name, body in rules.items()}


def _repeated(name: str, body: Node) -> Node:
    branches = [_parts(branch) for branch in (body.branches if isinstance(body, Choice) else (body,))]
    final = [parts for parts in branches if name not in _names(parts)]
    again = [parts for parts in branches if name in _names(parts)]
    if not final or not again:
        return body
    if all(_is(parts[-1], name) and name not in _names(parts[:-1]) for parts in again):
        return Sequence(
            parts=(Repeat(body=_choice([parts[:-1] for parts in again]), least=0, most=None), _choice(final))
        )
    if all(_is(parts[0], name) and name not in _names(parts[1:]) for parts in again):
        return Sequence(
            parts=(_choice(final), Repeat(body=_choice([parts[1:] for parts in again]), least=0, most=None))
        )
    return body


def _parts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, Sequence) else (node,)


def _names(parts: tuple[Node, ...]) -> set[str]:
    return {name for part in parts for name in references(part)}


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Reference) and node.name == name


def _choice(branches: list[tuple[Node, ...]]) -> Node:
    nodes = tuple(parts[0] if len(parts) == 1 else Sequence(parts=parts) for parts in branches)
    return nodes[0] if len(nodes) == 1 else Choice(branches=nodes)
