"""Rules that rewrite the members of unions and intersections.

Invariant: the language of the members together stays what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grammars.regular.kinds import CAT, CHARS, EMPTY, EPSILON, INFINITE, NOT, OR, REP

if TYPE_CHECKING:
    from grammars.regular.terms import Terms


def merge_alternatives(terms: Terms, members: set[int]) -> set[int]:
    """Join ``[a]t | [b]t`` to ``[ab]t``, and ``x{2,5}t | x{4,9}t`` to ``x{2,9}t``."""
    kind, args = terms.kind, terms.args
    guards: dict[int, int] = {}
    counts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    kept: set[int] = set()
    for member in members:
        head, tail = args[member] if kind[member] == CAT else (member, EPSILON)
        if kind[head] == CHARS:
            guards[tail] = guards.get(tail, 0) | args[head][0]
        elif kind[head] == REP and head != EPSILON:
            body, least, most = args[head]
            counts.setdefault((body, tail), []).append((least, most))
        else:
            kept.add(member)
    if len(guards) + len(counts) + len(kept) == len(members) and not any(c[0][0] == 1 for c in counts.values()):
        return members
    kept.update(terms.cat(terms.chars(guard), tail) for tail, guard in guards.items())
    for (body, tail), intervals in counts.items():
        if tail in members and min(intervals)[0] <= 1:  # t is x{0,0}t
            intervals.append((0, 0))
        for least, most in _joined(intervals):
            kept.add(terms.cat(terms.repeat(body, least, most), tail))
    return kept


def _joined(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for least, most in sorted(intervals):
        if joined and least <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], most))
        else:
            joined.append((least, most))
    return joined


def absorb(terms: Terms, members: set[int]) -> set[int]:
    """Drop ``yt`` beside ``.*t`` for every y, then t beside ``xt`` with nullable x, then conditions beside ``()``."""
    kind, args, nullable = terms.kind, terms.args, terms.nullable
    searched = {m for m in members if kind[m] == CAT and args[m][0] == terms.any_text}
    if searched:
        members = {m for m in members if not _has_suffix(terms, m, searched)}
    weaker: set[int] = set()
    nullable_member = False
    for member in members:
        if kind[member] == CAT:
            head, tail = args[member]
            if nullable[head] == EPSILON:
                weaker.update(args[tail] if kind[tail] == OR else (tail,))
        nullable_member |= nullable[member] == EPSILON and member != EPSILON
    kept = members - weaker
    if nullable_member or EPSILON in members:
        kept = {m for m in kept if terms.longest[m]}
        if not nullable_member:
            kept.add(EPSILON)
    return kept


def _has_suffix(terms: Terms, member: int, suffixes: set[int]) -> bool:
    kind, args = terms.kind, terms.args
    while kind[member] == CAT:
        member = args[member][1]
        if member in suffixes:
            return True
    return False


def merge_conjuncts(terms: Terms, members: set[int]) -> set[int]:
    """Join complements, and runs of single characters; see through contradictions and the empty text."""
    kind, args, nullable = terms.kind, terms.args, terms.nullable
    negated = [m for m in members if kind[m] == NOT]
    if EMPTY in members or any(args[m][0] in members for m in negated):
        return {EMPTY}
    if len(negated) > 1:  # De Morgan: one complement of a union has fewer states
        joined = terms.complement(terms.union(args[m][0] for m in negated))
        members = members.difference(negated) | {joined}
    if EPSILON in members and all(nullable[m] in (EMPTY, EPSILON) for m in members):
        return {EPSILON if all(nullable[m] == EPSILON for m in members) else EMPTY}
    runs = [m for m in members if kind[m] == CHARS or (kind[m] == REP and kind[args[m][0]] == CHARS)]
    if len(runs) > 1:
        members = members.difference(runs) | {_common_run(terms, runs)}
        members.discard(terms.any_text)
    return {EMPTY} if EMPTY in members else members


def _common_run(terms: Terms, runs: list[int]) -> int:
    """``[ab]{2,5}`` and ``[bc]{3,9}`` have ``[b]{3,5}`` in common."""
    guard, least, most = terms.alphabet.full, 0, INFINITE
    for m in runs:
        body, low, high = terms.args[m] if terms.kind[m] == REP else (m, 1, 1)
        guard, least, most = guard & terms.args[body][0], max(least, low), min(most, high)
    return terms.repeat(terms.chars(guard), least, most) if least <= most else EMPTY


def leaves_no_gap(inner: tuple[int, ...], least: int, most: int) -> bool:
    """``(x{a,b}){c,d} = x{ac,bd}``, where the intervals [ka, kb] for k = c to d leave no gap."""
    _, low, high = inner
    if least == most:
        return True
    if least == 0:
        return low <= 1
    return high == INFINITE or (least + 1) * low <= least * high + 1
