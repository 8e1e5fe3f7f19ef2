"""How what is true of one child decides what is asked of the rest of its container.

While a member or an item is open, the container's formulas hold `Outcome` atoms. Each assignment of truth to them
leaves other formulas; children that leave the same ones need not be told apart. So a child gets one goal per distinct
rest, and these goals exclude each other.

Invariant: the goals of one split are mutually exclusive, and none leads to a rest that is FALSE throughout.
"""

from __future__ import annotations

from grammars.json_schema.atoms import Outcome
from grammars.json_schema.boolean import FALSE, TRUE, AtomT, Formulas
from grammars.json_schema.leaves import Goals
from grammars.json_schema.search import Answering

Residues = tuple[int, ...]
"""One formula per outcome that the container itself may have."""

Split = dict[Residues, int]
"""The goal of the child by what it leaves."""


def split(formulas: Formulas[AtomT], goals: Goals, residues: Residues, own: int = TRUE) -> Answering[Split]:
    """Shannon-expand ``residues`` over their `Outcome` atoms, leaving out assignments that no value has.

    ``own`` is asked of the child in any case.
    """
    found = yield from _split(formulas, goals, residues, own)
    if own == TRUE:
        return found
    return {rest: both for rest, goal in found.items() if (both := goals.all_of((own, goal))) != FALSE}


def _split(formulas: Formulas[AtomT], goals: Goals, residues: Residues, path: int) -> Answering[Split]:
    if not any(residues):
        return {}
    outcome = _first_outcome(formulas, residues)
    if outcome is None:
        return {residues: TRUE}
    goal = outcome.goal
    with_it = _decide(formulas, residues, outcome, TRUE)
    without = _decide(formulas, residues, outcome, FALSE)
    path_with, path_without = path, path
    if any(with_it) and any(without):
        path_with = goals.all_of((path, goal))
        path_without = goals.all_of((path, goals.negate(goal)))
        if path_with == FALSE or not (yield ("goal", path_with)):
            with_it = (FALSE,)
        elif path_without == FALSE or not (yield ("goal", path_without)):
            without = (FALSE,)
    if not any(with_it):
        then: Split = {}
    else:
        then = yield from _split(formulas, goals, with_it, path_with)
    if not any(without):
        otherwise: Split = {}
    else:
        otherwise = yield from _split(formulas, goals, without, path_without)
    rests = dict.fromkeys([*then, *otherwise])
    return {
        rest: chosen
        for rest in rests
        if (chosen := goals.choose(goal, then.get(rest, FALSE), otherwise.get(rest, FALSE))) != FALSE
    }


def _first_outcome(formulas: Formulas[AtomT], residues: Residues) -> Outcome | None:
    for residue in residues:
        for atom, _ in formulas.atoms(residue):
            if isinstance(atom, Outcome):
                return atom
    return None


def _decide(formulas: Formulas[AtomT], residues: Residues, outcome: Outcome, truth: int) -> Residues:
    return tuple(formulas.assign(residue, outcome, truth) for residue in residues)  # type: ignore[arg-type]
