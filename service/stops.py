"""Stop strings, found in the bytes of tokens wherever the tokens' borders lie.

An automaton after Aho and Corasick (1975) over the UTF-8 bytes of all stop strings. The engine's process runs it to end
a sample (`TokenStopChecker`), the service's process runs the same one to trim and hold back text (`SampleText`).
Invariant: whether and where a text stops depends on its bytes alone, never on how they are cut into tokens or steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopAutomaton:
    """Immutable once built. State 0 is the start; each state stands for a prefix of at least one stop string."""

    def __init__(self, strings: Sequence[str]) -> None:
        """``strings`` are not empty."""
        self._next: list[dict[int, int]] = [{}]
        self._depth = [0]
        self._match = [0]
        for string in strings:
            self._insert(string.encode())
        self._fail = [0] * len(self._next)
        self._link()

    def step(self, state: int, byte: int) -> int:
        """The state after ``byte``: the longest suffix of what was read that begins a stop string."""
        while state and byte not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(byte, 0)

    def depth(self, state: int) -> int:
        """How many of the last bytes read could still become a stop string."""
        return self._depth[state]

    def match(self, state: int) -> int:
        """Length of the longest stop string that ends with the last byte read; 0 for none."""
        return self._match[state]

    def _insert(self, string: bytes) -> None:
        state = 0
        for depth, byte in enumerate(string, start=1):
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._depth.append(depth)
                self._match.append(0)
            state = self._next[state][byte]
        self._match[state] = len(string)

    def _link(self) -> None:
        """Breadth first, so that a state's shorter suffixes are linked before it."""
        queue = deque([0])
        while queue:
            state = queue.popleft()
            for byte, child in self._next[state].items():
                self._fail[child] = self.step(self._fail[state], byte) if state else 0
                self._match[child] = self._match[child] or self._match[self._fail[child]]
                queue.append(child)


class TokenStopChecker:
    """`decoding.stops.StopChecker` over the bytes of tokens."""

    def __init__(self, automaton: StopAutomaton, token_bytes: Sequence[bytes], state: int = 0) -> None:
        """``token_bytes[i]`` are the bytes that token i adds to the text, none for a special token."""
        self._automaton = automaton
        self._token_bytes = token_bytes
        self._state = state

    def feed(self, token: int) -> bool:
        """True where a stop string was completed within the token, at its end or before it."""
        for byte in self._token_bytes[token]:
            self._state = self._automaton.step(self._state, byte)
            if self._automaton.match(self._state):
                return True
        return False

    def fork(self) -> TokenStopChecker:
        """An independent copy in the same state."""
        return TokenStopChecker(self._automaton, self._token_bytes, self._state)
