"""The fewest tokens that spell a text.

Invariant: the tokens' bytes are the text, and no other sequence of tokens with these bytes is shorter.
"""

from __future__ import annotations

from grammars.matching.trie import FIRST, TokenTrie


def fewest_tokens(trie: TokenTrie, text: bytes) -> tuple[int, ...] | None:
    """A shortest spelling, the longest tokens first among equals; None where there is none.

    Backwards from the end: the least number of tokens from each place. Linear in the text times the longest token.
    """
    far = len(text) + 1
    least = [far] * len(text) + [0]
    choice = [(0, 0)] * len(text)
    for start in range(len(text) - 1, -1, -1):
        node: int | None = None
        for end in range(start + 1, len(text) + 1):
            node = trie.child(node, text[end - 1])
            if node is None:
                break
            first, after = trie.nodes[node, FIRST], trie.nodes[node + 1, FIRST]
            if first < after and least[end] + 1 <= least[start]:
                least[start] = least[end] + 1
                choice[start] = (int(trie.tokens[first]), end)
    if least[0] >= far:
        return None
    found = []
    place = 0
    while place < len(text):
        token, place = choice[place]
        found.append(token)
    return tuple(found)
