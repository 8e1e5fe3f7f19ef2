"""The chooser behind `auto`: as many guesses as pay, from the drafters that pay.

A step goes: ask the drafters that are worth their time (`trial.py`), prune all trees together to the nodes that raise
tokens per millisecond (`budget.py`, by chances of `acceptance.py` and a step's price of `costs.py`), then learn from
what was accepted. After an accepted node the target's token is known, so that each guess below it is an observation,
computed or not. Invariant: it decides how many guesses are computed, never what they are; a request that names its
drafters is left alone, and learnt from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drafters.choice.acceptance import Acceptance, Kind, Openness
from drafters.choice.budget import best_nodes, path_chances
from drafters.choice.costs import CostTable
from drafters.choice.trial import Place, Trials
from drafters.choosing import Choice, ChoiceState
from drafters.growing import GrowingTree
from drafters.protocol import DraftContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """A tree with what its nodes are; index 0 stands for node 0 and is not a guess."""

    tree: GrowingTree
    kinds: tuple[Kind, ...]

    @property
    def sequence_id(self) -> int:
        return self.tree.context.sequence_id

    @property
    def is_undecided(self) -> bool:
        return self.tree.context.mix is None

    def place(self, source: str, sequences: int) -> Place:
        return Place(source, self.tree.context.matcher is not None, sequences.bit_length())


@dataclass(slots=True)
class _Gain:
    """What guesses bring: the tokens expected of them, for so many rows."""

    tokens: float = 0.0
    rows: int = 0

    def add(self, chance: float) -> None:
        self.tokens += chance
        self.rows += 1


class CostChooser:
    """`drafters.choosing.Chooser` by cost."""

    def __init__(self, mix: Sequence[str], costs: CostTable) -> None:
        """``mix`` are the drafters that it may choose of; ``costs`` is refined by the steps that are observed."""
        self._mix = tuple(mix)
        self._costs = costs
        self._acceptance = Acceptance()
        self._trials = Trials()
        self._grown: dict[int, _Grown] = {}
        self._other_rows = 0
        self._draft_ms = 0.0
        self._budget = 0

    def begin(self, other_rows: int) -> None:
        """See `Chooser`."""
        self._other_rows = other_rows
        self._draft_ms = 0.0

    def choose(self, contexts: Sequence[DraftContext]) -> list[Choice]:
        """Undecided requests get the drafters that pay where they are."""
        undecided = [context for context in contexts if context.mix is None]
        mixes = {
            is_constrained: self._paying(is_constrained, trees, len(contexts))
            for is_constrained in (False, True)
            if (trees := sum((context.matcher is not None) == is_constrained for context in undecided))
        }
        for source in self._mix:
            if mixes and not any(source in mix for mix in mixes.values()):
                self._acceptance.fade(source)
        return [
            Choice(
                mix=mixes[context.matcher is not None] if context.mix is None else context.mix,
                limit=context.limit,
                width=context.width,
            )
            for context in contexts
        ]

    def prune(self, trees: Sequence[GrowingTree], draft_ms: Mapping[str, float]) -> list[Sequence[int]]:
        """Of undecided requests the nodes that pay, of the others all."""
        self._draft_ms = sum(draft_ms.values())
        grown = [_Grown(tree=tree, kinds=_kinds(tree)) for tree in trees]
        self._grown.update({item.sequence_id: item for item in grown})
        undecided = [item for item in grown if item.is_undecided]
        chances = [self._chances(item) for item in undecided]
        kept = self._best(chances, self._other_rows + sum(len(item.tree) for item in grown if not item.is_undecided))
        self._budget = sum(map(len, kept)) - len(kept)
        self._weigh(grown, undecided, list(zip(chances, kept, strict=True)), draft_ms)
        ready = iter(kept)
        return [next(ready) if item.is_undecided else range(len(item.tree)) for item in grown]

    def observe(self, sequence_id: int, tokens: Sequence[int], accepted: int) -> None:  # noqa: ARG002 (the walk tells)
        """Walk the tree along the tokens, and learn from every guess on the way."""
        grown = self._grown.pop(sequence_id, None)
        if grown is None:
            return
        node: int | None = 0
        for token in tokens:
            assert node is not None
            children = grown.tree.children[node]
            for guess, child in children.items():
                self._acceptance.learn(grown.kinds[child], sequence_id, accepted=guess == token)
            node = children.get(token)
            if node is None:
                return

    def end(self, rows: int, ms: float) -> None:
        """Refine what a step costs; one with chunks of prompts tells nothing about that."""
        self._trials.advance(ms + self._draft_ms)
        if not self._other_rows and ms > 0:
            self._costs.observe(rows, ms)

    def forget(self, sequence_id: int) -> None:
        """Drop what was kept for a sequence."""
        self._grown.pop(sequence_id, None)
        self._acceptance.forget(sequence_id)

    def state(self) -> ChoiceState:
        """See `Chooser`."""
        return ChoiceState(budget=self._budget, acceptance=self._acceptance.rates())

    def _paying(self, is_constrained: bool, trees: int, sequences: int) -> tuple[str, ...]:
        load = sequences.bit_length()
        return tuple(source for source in self._mix if self._trials.asks(Place(source, is_constrained, load), trees))

    def _chances(self, item: _Grown) -> list[float]:
        own = [1.0, *(self._acceptance.chance(kind, item.sequence_id) for kind in item.kinds[1:])]
        return path_chances(item.tree.parents, own)

    def _best(self, chances: Sequence[Sequence[float]], other_rows: int) -> list[list[int]]:
        if all(len(reached) == 1 for reached in chances):
            return [[0] for _ in chances]
        return best_nodes(chances, lambda rows: self._draft_ms + self._costs.ms(rows), other_rows=other_rows)

    def _weigh(
        self,
        grown: Sequence[_Grown],
        undecided: Sequence[_Grown],
        pruned: Sequence[tuple[Sequence[float], Sequence[int]]],
        draft_ms: Mapping[str, float],
    ) -> None:
        """Tell the trials what each drafter that was asked saves: the steps that its guesses spare, less their rows."""
        if not undecided or not draft_ms:
            return
        asked: Counter[str] = Counter(source for item in grown for source in draft_ms if source in item.tree.mix)
        trees: Counter[Place] = Counter()
        gains: dict[Place, _Gain] = {}
        for item, (reached, kept) in zip(undecided, pruned, strict=True):
            places = {source: item.place(source, len(grown)) for source in draft_ms if source in item.tree.mix}
            trees.update(places.values())
            for node in kept[1:]:
                gains.setdefault(places[item.tree.sources[node]], _Gain()).add(reached[node])
        ms = self._draft_ms + self._costs.ms(len(undecided) + self._budget)
        row_ms = (self._costs.ms(len(undecided) + self._budget) - self._costs.ms(len(undecided))) / max(1, self._budget)
        tokens = len(undecided) + sum(gain.tokens for gain in gains.values())
        for place, count in trees.items():
            gain = gains.get(place, _Gain())
            cost = draft_ms[place.source] * count / asked[place.source]
            # What a token costs without this drafter is what each of its tokens saves.
            token_ms = (ms - cost - gain.rows * row_ms) / (tokens - gain.tokens)
            saved = gain.tokens * token_ms - gain.rows * row_ms
            self._trials.learn(place, saved=saved / count, cost=cost / count)


def _kinds(tree: GrowingTree) -> tuple[Kind, ...]:
    """What each node of a tree is, by its source, the mask where it was guessed, and the siblings before it."""
    kinds = [Kind("", Openness.FREE, 0)] * len(tree)
    sources = tree.sources
    for parent, children in enumerate(tree.children):
        if children:
            openness = Openness.of(tree.legal_below(parent))
            for rank, child in enumerate(children.values()):
                goes_on = sources[child] == sources[parent]
                kinds[child] = Kind.of(sources[child], openness, rank, goes_on=goes_on)
    return tuple(kinds)
