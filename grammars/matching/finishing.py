"""Texts that are whole within a number of tokens.

A token is allowed where the text after it can still be completed with the tokens that are left. What that takes is
bounded from above by a *witness*: a completing text and the fewest tokens that spell it. While even the longest witness
behind any legal token fits, rows are those of the grammar, untouched.

Of a position's tokens, those that lead to one configuration have one witness, unless the witness ends a word that must
not come again; then one of them is tried in the others' place, and those that spell the word otherwise are tried alone.

Invariant: from every position that these masks lead to, the text can be completed with the tokens that are left, and
some allowed token keeps it so. What is allowed depends on the tokens before alone, not on how they were guessed.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from decoding.errors import GrammarStateError, InvalidRequestError
from decoding.masks import MaskRow
from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.fewest import fewest_tokens
from grammars.matching.matcher import PushdownMatcher
from grammars.matching.memory import Event, Happening, WordMemory
from grammars.matching.positions import Position, Positions
from grammars.matching.reach import Group, reach
from grammars.matching.rows import freeze
from grammars.matching.shortest import Shortest
from grammars.matching.trie import FIRST
from grammars.matching.walk import Bits
from grammars.matching.witness import Witnesses

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

MAX_KEPT = 4096
"""Most configurations of which something is kept; groups of tokens are kept of `MAX_GROUPS`."""
MAX_GROUPS = 32
BYTES_PER_PLACE = 300
"""Memory of what is known of one place or configuration, about."""
MAX_ALONE = 64
"""Most tokens of a group that are tried alone where the first one's witness does not fit."""
LIMIT = "sampling.max_tokens"


class Finishing:
    """What all samples of a grammar share: where tokens lead, and what it takes to the end from there."""

    def __init__(self, automaton: PushdownAutomaton, positions: Positions) -> None:
        self.vocabulary = automaton.trie.vocabulary
        self._automaton = automaton
        self._read = positions.read
        self._shortest = Shortest(automaton)
        self._witnesses = Witnesses(automaton, self._shortest, positions)
        self._groups: dict[Configuration, tuple[Group, ...]] = {}
        self._longest: dict[Configuration, int | None] = {}
        self._endings: dict[Configuration, bool] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, about."""
        groups = sum(group.tokens.nbytes for found in self._groups.values() for group in found)
        return groups + BYTES_PER_PLACE * (self._shortest.num_places + len(self._longest) + len(self._endings))

    def text(self, position: Position) -> bytes | None:
        """A text that completes ``position``, the shortest where nothing is remembered; None where none was found."""
        return self._witnesses.text(position)

    def tokens(self, text: bytes) -> tuple[int, ...] | None:
        """The fewest tokens that spell a text."""
        return fewest_tokens(self._automaton.trie, text)

    def is_plain_within(self, configuration: Configuration, left: int) -> bool:
        """Whether single bytes complete a text within ``left`` tokens, whatever was read before."""
        return len(self._shortest.text(configuration)) <= left and not self._ends_word(configuration)

    def is_exact(self, configuration: Configuration) -> bool:
        """Whether no text that completes an untouched ``configuration`` has fewer bytes than the one that is found."""
        return not self._ends_word(configuration)

    def row(self, position: Position, row: MaskRow, left: int) -> MaskRow | Bits:
        """``row`` where every token of it may come with ``left`` tokens left after it, else the bits of those that may.

        Ids that end the text are among them.
        """
        longest = self._longest_after(position.configuration)
        if longest is not None and longest <= left:
            return row
        legal = row.bits_W.view(np.uint32)
        bits = np.zeros_like(legal)
        for group in self._groups_of(position.configuration):
            tokens = group.tokens[_is_set(legal, group.tokens)]
            if not len(tokens):
                continue
            if not self._ends_word(group.after):
                if self._fits(self._shortest.text(group.after), left):
                    _set(bits, tokens)
                continue
            _set(bits, self._each(position, tokens, group.is_plain, left))
        eos = np.array(self.vocabulary.eos_ids, dtype=np.int32)
        _set(bits, eos[_is_set(legal, eos)])
        return row if np.array_equal(bits, legal) else bits

    def _each(
        self, position: Position, tokens: npt.NDArray[np.int32], is_plain: bool, left: int
    ) -> npt.NDArray[np.int32]:
        """Those of a group's tokens that may come, where their witnesses may repeat a word."""
        alone = tokens
        kept: npt.NDArray[np.int32] = tokens[:0]
        if is_plain:
            after = self._after(position, int(tokens[0]))
            text = self._witnesses.text(after)
            if text is not None and self._fits(text, left):
                alone = np.intersect1d(tokens, self._otherwise(position, after, text))
                kept = np.setdiff1d(tokens, alone, assume_unique=True)
            else:
                alone = tokens[:MAX_ALONE]
        fitting = []
        for token in alone.tolist():
            text = self._witnesses.text(self._after(position, token))
            if text is not None and self._fits(text, left):
                fitting.append(token)
        return np.concatenate([kept, np.array(fitting, dtype=np.int32)])

    def _otherwise(self, position: Position, after: Position, text: bytes) -> npt.NDArray[np.int32]:
        """The tokens after which ``text`` may repeat a word, although it does not ``after`` another token.

        They spell, between what was read of a word at ``position`` and how ``text`` ends it, one of the words that are
        there already or that ``text`` holds itself.
        """
        trie = self._automaton.trie
        words = _words(self._automaton, after, text)
        found = []
        for index, partial in enumerate(position.memory.partials):
            ended = next((word for number, _, word in words if number == index), None)
            if ended is None:
                continue
            ending = ended[len(after.memory.partials[index].text) :]
            others = {word for number, parent, word in words if number is None and parent == partial.parent}
            for word in others | after.memory.words_above(partial.parent):
                middle = word[len(partial.text) : len(word) - len(ending)]
                if partial.text + middle + ending == word and middle and (node := trie.find(middle)) is not None:
                    found.append(trie.tokens[trie.nodes[node, FIRST] : trie.nodes[node + 1, FIRST]])
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int32)

    def _after(self, position: Position, token: int) -> Position:
        after = self._read(position, self.vocabulary.tokens[token])
        if after is None:
            raise GrammarStateError(f"token {token} is illegal here")
        return after

    def _fits(self, text: bytes, left: int) -> bool:
        if len(text) <= left:
            return True
        if len(text) > left * self._automaton.trie.max_depth:
            return False
        tokens = self.tokens(text)
        return tokens is not None and len(tokens) <= left

    def _longest_after(self, configuration: Configuration) -> int | None:
        """Bytes of the longest witness after one token; None where it depends on what was read."""
        if configuration not in self._longest:
            afters = [group.after for group in self._groups_of(configuration)]
            is_sure = not any(self._ends_word(after) for after in afters)
            longest = max((len(self._shortest.text(after)) for after in afters), default=0) if is_sure else None
            _keep(self._longest, configuration, longest, MAX_KEPT)
        return self._longest[configuration]

    def _groups_of(self, configuration: Configuration) -> tuple[Group, ...]:
        groups = self._groups.get(configuration)
        if groups is None:
            groups = reach(self._automaton, configuration)
            _keep(self._groups, configuration, groups, MAX_GROUPS)
        return groups

    def _ends_word(self, configuration: Configuration) -> bool:
        """Whether the shortest completion ends a word that must not come again."""
        ends = self._endings.get(configuration)
        if ends is None:
            events: list[Event] = []
            self._automaton.read(configuration, self._shortest.text(configuration), events)
            ends = any(event.kind is Happening.REMEMBERED for event in events)
            _keep(self._endings, configuration, ends, MAX_KEPT)
        return ends


class FinishingMatcher:
    """`grammars.protocol.Matcher` of a text that is whole after at most so many tokens."""

    __slots__ = ("_finishing", "_history", "_inner", "_left", "_witness")

    def __init__(self, inner: PushdownMatcher, finishing: Finishing, limit: int) -> None:
        """``inner`` is at the start.

        Raises InvalidRequestError where no text is found that ``limit`` tokens spell, or finding one is too much work.
        """
        self._inner = inner
        self._finishing = finishing
        self._left = limit
        self._history: list[tuple[int, tuple[int, ...] | None]] = []
        self._witness: tuple[int, ...] | None = None
        try:
            with inner.paying():
                self._witness = self._fresh()
        except GrammarStateError as error:
            raise InvalidRequestError("sampling.finish_within_limit", f"cannot be promised here: {error}") from error
        if self._witness is None or len(self._witness) > limit:
            raise InvalidRequestError(
                LIMIT,
                f"{limit} tokens (or what the prompt leaves of the context) are too few: {self._found()};"
                " raise it or leave sampling.finish_within_limit unset",
            )

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete."""
        return self._inner.is_accepting

    @property
    def is_finished(self) -> bool:
        """An end-of-sequence token was advanced over."""
        return self._inner.is_finished

    def mask(self) -> MaskRow:
        """The legal next tokens after which the text can still be completed within the limit.

        Past the limit, where nothing is committed any more, those of the grammar.
        """
        row = self._inner.mask()
        if self._left <= 0:
            return row
        with self._inner.paying():
            self._settle()
            bits = self._finishing.row(self._inner.position, row, self._left - 1)
            if isinstance(bits, MaskRow):
                return bits
            if self._witness:
                _set(bits, np.array(self._witness[:1], dtype=np.int32))
            return freeze(bits, self._finishing.vocabulary.size)

    def only_end(self) -> bool:
        """True where nothing but an end-of-sequence token is legal."""
        return self._inner.only_end()

    def advance(self, token: int) -> None:
        """Commit to ``token``. Raises GrammarStateError where the grammar forbids it."""
        if self._left > 0 and not self._inner.is_finished:
            with self._inner.paying():
                self._settle()
        self._inner.advance(token)
        self._history.append((self._left, self._witness))
        self._left -= 1
        self._witness = self._witness[1:] if self._witness and self._witness[0] == token else None

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` advances."""
        self._inner.rollback(count)
        if count:
            self._left, self._witness = self._history[-count]
            del self._history[-count:]

    def fork(self) -> FinishingMatcher:
        """An independent matcher in the same state, without the history before it."""
        twin = object.__new__(FinishingMatcher)
        twin._inner = self._inner.fork()
        twin._finishing = self._finishing
        twin._left = self._left
        twin._witness = self._witness
        twin._history = []
        return twin

    def forced(self, limit: int) -> bytes:
        """The bytes, at most ``limit``, that every completion starts with from here."""
        return self._inner.forced(limit)

    def branches(self, limit: int) -> tuple[bytes, ...]:
        """The few texts that the next choice leaves, see `grammars.protocol.Matcher`; the limit may forbid some."""
        return self._inner.branches(limit)

    def _found(self) -> str:
        """What the search for a short text came to, and no more than that."""
        if self._witness is None:
            return "no whole text was found"
        if self._finishing.is_exact(self._inner.position.configuration):
            return f"the shortest text in bytes takes {len(self._witness)} tokens"
        return f"the shortest text found takes {len(self._witness)} tokens, one of other items or keys may take fewer"

    def _settle(self) -> None:
        """Have a witness where a completion byte by byte may not fit; it is kept as long as it is followed."""
        if self._witness is None and not self._finishing.is_plain_within(
            self._inner.position.configuration, self._left
        ):
            self._witness = self._fresh()

    def _fresh(self) -> tuple[int, ...] | None:
        text = self._finishing.text(self._inner.position)
        return None if text is None else self._finishing.tokens(text)


def _words(automaton: PushdownAutomaton, position: Position, text: bytes) -> list[tuple[int | None, int, bytes]]:
    """The remembered words that ``text`` ends: (which of the position's partial words, or None; stack below; word)."""
    events: list[Event] = []
    automaton.read(position.configuration, text, events)
    numbered: list[int | None] = list(range(len(position.memory.partials)))
    memory = WordMemory(partials=position.memory.partials)
    found = []
    done = 0
    for event in events:
        upto = event.position + (event.kind is Happening.PUSHED and not event.is_value)
        memory = _taken(memory.after(text[done:upto], []))
        done = upto
        if event.kind is Happening.REMEMBERED:
            found.append((numbered[-1], event.parent, memory.partials[-1].text))
        memory = WordMemory(partials=_taken(memory.after(b"", [event._replace(position=0)])).partials)
        numbered = [*numbered, None][: len(memory.partials)]
    return found


def _taken(memory: WordMemory | None) -> WordMemory:
    assert memory is not None
    return memory


def _keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    if len(kept) >= most:
        kept.clear()
    kept[key] = value


def _is_set(bits: Bits, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (bits[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1) != 0
    return found


def _set(bits: Bits, tokens: npt.NDArray[np.int32]) -> None:
    np.bitwise_or.at(bits, tokens >> 5, np.uint32(1) << (tokens & 31).astype(np.uint32))
