"""The tokens by which a word would come again, or could do nothing else.

Two kinds of words (`tables.Remembering`): *endless* ones can always go on to a new word, so that only their ends need a
look; of others, every beginning is looked at, along the words read before.

Invariant: a token that is not among those found leads to a memory that is legal and not exhausted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grammars.matching.automaton import Configuration, PushdownAutomaton
from grammars.matching.memory import Event, Happening, Reading, WordMemory
from grammars.matching.walk import Ints
from grammars.matching.words import Words

_NO_STACK = -1
_SPACE = frozenset(b" \t\r\n")


class WholeToken(NamedTuple):
    """A token that may repeat a word by itself: `word`, above the stack `node`.

    The word is None where the token holds more than one, or where its words may run out: it must be read to tell.
    """

    token: int
    node: int
    word: bytes | None


class Repeats:
    """What the memory of a sample forbids among the tokens of a row."""

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._automaton = automaton
        self._words = Words(automaton)

    def is_exhausted(self, configuration: Configuration, memory: WordMemory) -> bool:
        """Whether a word being read can only become one that was read before."""
        for partial in memory.partials if memory.frames else ():
            if self._automaton.remembering(partial.node).closing is not None:
                continue
            rivals = memory.rivals(partial)
            if rivals and not self._words.are_more(len(rivals), configuration, partial.node):
                return True
        return False

    def whole_token(self, configuration: Configuration, token: int) -> WholeToken:
        """What there is to know of a token that holds a whole word, or the beginning of one after another."""
        text = self._automaton.trie.vocabulary.readable[token]
        events: list[Event] = []
        self._automaton.read(configuration, text, events)
        begun = [event for event in events if event.kind is Happening.PUSHED]
        ended = [event for event in events if event.kind is Happening.REMEMBERED]
        if len(ended) != 1 or len(begun) != 1 or self._automaton.remembering(begun[0].node).closing is None:
            return WholeToken(token, _NO_STACK, None)
        (end,) = ended
        # words above a stack that the token pops first are forgotten
        popped = any(event.node == end.parent for event in events if event.kind is Happening.POPPED)
        word = text[begun[0].position + 1 : end.position]
        return WholeToken(token, _NO_STACK if popped else end.parent, word)

    def found(self, configuration: Configuration, memory: WordMemory, whole: tuple[WholeToken, ...]) -> list[Ints]:
        """Arrays of the tokens that ``memory`` forbids after ``configuration``."""
        if not memory.frames and not whole:
            return []  # no word was read to its end
        trie = self._automaton.trie
        found = [trie.tokens_below(node) for node in self._closing_nodes(memory)]
        if self._may_clash(configuration, memory):
            found += [trie.tokens_below(node) for node in self._clashes(configuration, memory, None)]
        again = [item.token for item in whole if self._comes_again(configuration, memory, item)]
        return [*found, np.array(again, dtype=np.int32)] if again else found

    def _closing_nodes(self, memory: WordMemory) -> Iterator[int]:
        """Where tokens end a used word of the endless kind."""
        if not memory.partials:
            return
        partial = memory.partials[-1]
        closing = self._automaton.remembering(partial.node).closing
        if closing is None:
            return
        for word in memory.rivals(partial):
            node = self._automaton.trie.find(word[len(partial.text) :] + closing)
            if node is not None:
                yield node

    def _clashes(self, configuration: Configuration, memory: WordMemory, above: int | None) -> Iterator[int]:
        """The nodes below ``above`` (None: of the whole trie) at which a word of the other kind comes again or must."""
        trie = self._automaton.trie
        for byte in self._towards_clash(configuration, memory):
            node = trie.child(above, byte)
            if node is None:
                continue
            events: list[Event] = []
            after = self._automaton.read(configuration, bytes((byte,)), events)
            if after is None:
                continue
            then = memory.after(bytes((byte,)), events)
            if then is None or self.is_exhausted(after, then):
                yield node
            elif self._may_clash(after, then):
                yield from self._clashes(after, then, node)

    def _towards_clash(self, configuration: Configuration, memory: WordMemory) -> list[int]:
        """The next bytes after which a clash is still possible."""
        live = self._automaton.live_bytes(configuration)
        if self._is_before_word(configuration, memory):
            return live
        bytes_: set[int] = set()
        for partial in memory.partials:
            if self._automaton.remembering(partial.node).closing is not None:
                continue
            for word in memory.rivals(partial):
                if len(word) == len(partial.text):
                    return live
                bytes_.add(word[len(partial.text)])
                if partial.reading is Reading.BETWEEN:
                    bytes_ |= _SPACE
        return [byte for byte in live if byte in bytes_]

    def _may_clash(self, configuration: Configuration, memory: WordMemory) -> bool:
        """Whether a word of the other kind may come to its end as one that was read before."""
        if not memory.frames:
            return False
        if self._is_before_word(configuration, memory):
            return True
        return any(
            self._automaton.remembering(partial.node).closing is None and memory.rivals(partial)
            for partial in memory.partials
        )

    def _is_before_word(self, configuration: Configuration, memory: WordMemory) -> bool:
        """Whether the next word of a container with words of the other kind begins without a pop in between."""
        stack = configuration.stack
        if self._automaton.remembering(stack).is_space:
            stack = self._automaton.stacks.parent_of[stack]
        return stack in self._automaton.careful_stacks and bool(memory.words_above(stack))

    def _comes_again(self, configuration: Configuration, memory: WordMemory, item: WholeToken) -> bool:
        """Whether a token that holds a whole word repeats one."""
        if item.word is not None:
            return item.word in memory.words_above(item.node)
        text = self._automaton.trie.vocabulary.readable[item.token]
        events: list[Event] = []
        after = self._automaton.read(configuration, text, events)
        assert after is not None
        then = memory.after(text, events)
        return then is None or self.is_exhausted(after, then)
