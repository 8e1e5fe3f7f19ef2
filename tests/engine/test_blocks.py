from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.blocks import BlockPool
from engine.kv_cache import BLOCK_SIZE
from engine.prefix import PrefixChain, next_key, root_key


class PoolMachine(RuleBasedStateMachine):
    """Tables come, share, are indexed and go; a plain model of who owns what is kept beside the pool."""

    @initialize(size=st.integers(1, 12))
    def start(self, size: int) -> None:
        self.size = size
        self.pool = BlockPool(size)
        self.tables: list[list[int]] = []
        self.content: dict[int, int] = {}
        self.next_content = 0

    @rule(count=st.integers(0, 5))
    def allocate(self, count: int) -> None:
        if count > self.pool.num_available:
            return
        blocks = self.pool.allocate(count)
        owned = {block for table in self.tables for block in table}
        assert not owned & set(blocks), "a block in use was handed out again"
        for block in blocks:
            self.content[block] = self.next_content
            self.next_content += 1
        self.tables.append(blocks)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.pool.share(table)
        self.tables.append(list(table))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.pool.release(self.tables.pop(index))

    @precondition(lambda self: any(self.tables))
    @rule(data=st.data())
    def insert(self, data) -> None:
        block = data.draw(st.sampled_from([block for table in self.tables for block in table]))
        content = self.content[block]
        self.pool.insert(block, key=b"%d" % content, parent=b"", tokens=[content])

    @rule(data=st.data())
    def look_up(self, data) -> None:
        content = data.draw(st.integers(0, max(self.next_content, 1)))
        block = self.pool.lookup(b"%d" % content, parent=b"", tokens=[content])
        if block is not None:
            assert self.content[block] == content, "the index named a block that holds something else"
            self.pool.claim([block])
            self.tables.append([block])

    @invariant()
    def accounting(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        used = {block for table in self.tables for block in table}
        counts = self.pool.counts()
        assert (counts.used, counts.total) == (len(used), self.size)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


def test_cached_blocks_are_evicted_least_recently_released_first_and_leaves_before_roots():
    pool = BlockPool(4)
    first, second = pool.allocate(2), pool.allocate(2)
    for name, table in ((b"a", first), (b"b", second)):
        for index, block in enumerate(table):
            pool.insert(block, key=name + b"%d" % index, parent=b"", tokens=[index])
    pool.release(first)
    pool.release(second)
    assert pool.allocate(3) == [first[1], first[0], second[1]]
    assert pool.lookup(b"b0", parent=b"", tokens=[0]) == second[0]
    assert pool.lookup(b"a0", parent=b"", tokens=[0]) is None


def test_a_hit_compares_tokens_and_parent_not_only_the_key():
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.insert(block, key=b"k", parent=b"p", tokens=[1, 2])
    assert pool.lookup(b"k", parent=b"p", tokens=[1, 2]) == block
    assert pool.lookup(b"k", parent=b"p", tokens=[1, 3]) is None
    assert pool.lookup(b"k", parent=b"q", tokens=[1, 2]) is None


def test_releasing_twice_is_caught():
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError):
        pool.release(blocks)


def test_prefix_keys_depend_on_tenant_and_on_every_token_before():
    tokens = list(range(2 * BLOCK_SIZE))
    chain = PrefixChain.of_tenant("a")
    chain.extend(tokens, 2)
    assert chain.keys == [
        next_key(root_key("a"), tokens[:BLOCK_SIZE]),
        next_key(next_key(root_key("a"), tokens[:BLOCK_SIZE]), tokens[BLOCK_SIZE:]),
    ]
    other_tenant = PrefixChain.of_tenant("b")
    other_tenant.extend(tokens, 2)
    other_start = PrefixChain.of_tenant("a")
    other_start.extend([7, *tokens[1:]], 2)
    assert not set(chain.keys) & set(other_tenant.keys)
    assert chain.keys[1] != other_start.keys[1]
