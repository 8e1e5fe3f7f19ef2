"""The flat trie against the list of tokens that it is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=40), st.binary(min_size=1, max_size=4))
def test_paths_subtrees_and_prefixes(texts, prefix):
    vocabulary = Vocabulary(
        tokens=(*texts, b""), special_ids=frozenset([len(texts)]), eos_ids=(len(texts),), size=len(texts) + 1
    )
    trie = TokenTrie.of(vocabulary)
    path: list[int] = []
    spelled: dict[int, bytes] = {}
    for node in range(len(trie)):
        del path[trie.depth_N[node] :]
        path.append(int(trie.byte_N[node]))
        for token in trie.tokens[trie.first_N[node] : trie.first_N[node + 1]].tolist():
            spelled[token] = bytes(path)
        end = next((n for n in range(node + 1, len(trie)) if trie.depth_N[n] <= trie.depth_N[node]), len(trie))
        assert trie.skip_N[node] == end
    assert spelled == {token: text for token, text in enumerate(texts) if text}
    assert sorted(trie.tokens_from(prefix)) == [t for t, text in enumerate(texts) if text.startswith(prefix)]
