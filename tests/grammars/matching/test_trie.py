"""The flat trie against the list of tokens that it is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grammars.matching.trie import BYTE, DEPTH, FIRST, SKIP, TokenTrie
from grammars.vocabulary import Vocabulary


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=40), st.binary(min_size=1, max_size=4))
def test_paths_subtrees_and_prefixes(texts, prefix):
    texts = [text.replace(b"\xff", b"\xfe") for text in texts]
    vocabulary = Vocabulary(
        tokens=(*texts, b""), special_ids=frozenset([len(texts)]), eos_ids=(len(texts),), size=len(texts) + 1
    )
    trie = TokenTrie.of(vocabulary)
    path: list[int] = []
    spelled: dict[int, bytes] = {}
    for node in range(len(trie)):
        del path[trie.nodes[node, DEPTH] :]
        path.append(int(trie.nodes[node, BYTE]))
        for token in trie.tokens[trie.nodes[node, FIRST] : trie.nodes[node + 1, FIRST]].tolist():
            spelled[token] = bytes(path)
        end = next(
            (n for n in range(node + 1, len(trie)) if trie.nodes[n, DEPTH] <= trie.nodes[node, DEPTH]), len(trie)
        )
        assert trie.nodes[node, SKIP] == end
    assert spelled == {token: text for token, text in enumerate(texts) if text}
    found = trie.find(prefix)
    below = [] if found is None else sorted(trie.tokens_below(found).tolist())
    assert below == [t for t, text in enumerate(texts) if text.startswith(prefix)]
