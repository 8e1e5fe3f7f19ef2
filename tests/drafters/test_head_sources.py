"""Heads as drafters: what they keep of a sequence, and how they grow on a tree beside others."""

from __future__ import annotations

import pytest
import torch

from decoding.errors import GrammarStateError
from decoding.masks import MaskRow
from drafters.checkpoints.load import load_head
from drafters.choosing import FixedChooser
from drafters.companion import Computed
from drafters.composition import Composition
from drafters.growing import GrowingTree
from drafters.heads.cache import ContiguousCache
from drafters.heads.medusa import MedusaHeads
from drafters.medusa import MedusaSource
from drafters.protocol import DraftContext
from drafters.recurrent import RecurrentSource

KINDS = ("eagle", "eagle3", "mtp-qwen")


@pytest.fixture(params=KINDS)
def head(request, files, target, tmp_path):
    head = load_head(files(request.param).write(tmp_path), target)
    head.files = files(request.param)
    return head


class LoneSlots(ContiguousCache):
    """`SlotCache` whose sequences share nothing; what blocks are called decides which feature is theirs."""

    def place(self, sequence_id, blocks, pairs):
        self.truncate(sequence_id, pairs)

    def keep_features(self, blocks, features_NF):
        self.kept = {**getattr(self, "kept", {}), **dict(zip(blocks, features_NF, strict=True))}

    def feature(self, block):
        return self.kept[block]

    def copy_slots(self, sources, targets): ...


BLOCK = 2


@pytest.fixture
def new_source(head, target):
    def make():
        cache = LoneSlots(head.shape, head.num_layers, dtype=torch.float64, device=torch.device("cpu"))
        return RecurrentSource(
            "eagle",
            head,
            cache,
            vocab_size=target.vocab_size,
            num_tokens=target.vocab_size,
            depth=3,
            eos_token_ids=(),
            block_size=BLOCK,
        )

    return make


class States:
    """Of several texts, one after the other."""

    def __init__(self, texts):
        self.texts = texts

    def features(self, spec, rows):
        return torch.cat([text.features(spec.layer_inputs) for text in self.texts])[rows]


def show(source, texts, spans):
    """Let the source see the target compute the tokens of these spans, features and all."""
    computed, offset = [], 0
    for id_, text in texts.items():
        if id_ in spans:
            start, stop = spans[id_]
            blocks = [100 * id_ + block for block in range(len(text.tokens))]
            rows = [offset + position for position in range(start, stop)]
            computed.append(Computed(sequence_id=id_, tokens=text.tokens, blocks=blocks, first=start, rows=rows))
        offset += len(text.tokens)
    with torch.inference_mode():
        source.follow(computed, States(list(texts.values())))


def context(id_, tokens, *, matcher=None, limit=9, width=3, mix=None):
    return DraftContext(
        sequence_id=id_, tokens=tokens, num_prompt=1, matcher=matcher, limit=limit, width=width, mix=mix
    )


def drafts(source, texts):
    trees = [
        GrowingTree(context(id_, text.tokens), mix=(source.name,), limit=9, width=3) for id_, text in texts.items()
    ]
    source.grow(trees)
    return [tree.draft() for tree in trees]


def test_trees_do_not_depend_on_how_the_text_was_computed(new_source, text_of):
    texts = {4: text_of(9, 1), 6: text_of(5, 2)}
    whole = new_source()
    show(whole, texts, {4: (0, 8), 6: (0, 4)})
    expected = drafts(whole, texts)
    assert [len(draft.tree) for draft in expected] == [9, 9]
    assert {source for draft in expected for source in draft.sources[1:]} == {whole.name}
    cut = new_source()
    for spans in ({4: (0, 2)}, {4: (2, 3), 6: (0, 3)}, {6: (3, 4), 4: (3, 8)}):
        show(cut, texts, spans)
    assert drafts(cut, texts) == expected
    assert drafts(cut, texts) == expected  # growing leaves nothing behind


def test_a_preempted_sequence_is_followed_again(new_source, text_of):
    texts = {4: text_of(9, 1)}
    source = new_source()
    show(source, texts, {4: (0, 8)})
    expected = drafts(source, texts)
    show(source, texts, {4: (2, 8)})  # behind a cached block
    assert drafts(source, texts) == expected
    show(source, texts, {4: (0, 8)})
    assert drafts(source, texts) == expected


def test_a_gap_that_no_block_ends_gives_no_guess(new_source, text_of):
    texts = {4: text_of(9, 1)}
    source = new_source()
    show(source, texts, {4: (0, 3)})
    show(source, texts, {4: (5, 8)})
    assert [len(draft.tree) for draft in drafts(source, texts)] == [1]


def test_a_fork_goes_its_own_way(new_source, text_of):
    text = text_of(9, 1)
    source = new_source()
    show(source, {4: text}, {4: (0, 5)})
    source.fork(4, 5)
    show(source, {4: text}, {4: (5, 8)})
    assert [len(draft.tree) for draft in drafts(source, {4: text, 5: text})] == [9, 1]


def test_an_old_state_gives_no_guess(new_source, text_of):
    text = text_of(9, 1)
    source = new_source()
    show(source, {4: text}, {4: (0, 7)})
    assert [len(draft.tree) for draft in drafts(source, {4: text, 5: text})] == [1, 1]
    show(source, {4: text}, {4: (7, 8)})
    assert [len(draft.tree) for draft in drafts(source, {4: text, 5: text})] == [9, 1]
    source.forget(4)
    assert [len(draft.tree) for draft in drafts(source, {4: text})] == [1]
    assert source._cache.bytes_used == 0


class Written:
    """Guesses the given runs below node 0, and one token more below whatever others guess."""

    name = "written"

    def __init__(self, *runs, more=None):
        self.runs, self.more = runs, more

    def grow(self, trees):
        for tree in trees:
            for node in tree.tips(self.name):
                for run in self.runs if node == 0 else [self.more] if self.more else []:
                    tree.extend(node, run, self.name)

    def observe(self, sequence_id, tokens): ...

    def forget(self, sequence_id): ...


def test_a_head_continues_what_others_guessed(head, new_source, plain, target, text_of):
    texts = {4: text_of(6, 1), 6: text_of(4, 2)}
    source, twin = new_source(), plain(head.files, target)
    show(source, texts, {4: (0, 5), 6: (0, 3)})
    drafter = Composition([Written([7, 8], [9]), source], FixedChooser(["written", source.name], rows=40))
    proposed = drafter.propose([context(id_, text.tokens, limit=14) for id_, text in texts.items()])
    ids = list(range(target.vocab_size)) if head.target_ids is None else head.target_ids.tolist()
    for text, draft in zip(texts.values(), proposed, strict=True):
        tree = draft.tree
        assert len(tree) == 14
        assert tree.tokens[1:4] == (7, 8, 9)
        below = set()
        for node in range(4, 14):
            path = [tree.tokens[step] for step in tree.path(node)[1:]]
            assert path[:2] == [7, 8] or path[:1] == [9]
            below.add(path[0])
            logits = twin.chain(text, path[:-1])[-1]
            assert path[-1] in {ids[best] for best in torch.topk(logits, 3).indices.tolist()}
        assert below == {7, 9}
        assert draft.sources[4:] == (source.name,) * 10
        assert draft.rejected == 0


def test_turns_with_others_end_and_stay_within_the_limit(new_source, text_of):
    texts = {4: text_of(6, 1)}
    source = new_source()
    show(source, texts, {4: (0, 5)})
    drafter = Composition([Written([7], more=[5, 6]), source], FixedChooser(["written", source.name], rows=60))
    (draft,) = drafter.propose([context(4, texts[4].tokens, limit=50, width=2)])
    assert len(draft.tree) <= 50
    assert {"written", source.name} <= set(draft.sources)
    assert draft.sources.count("written") > 2  # it goes on below what the head guessed


class EndsEarly:
    """A matcher that allows some tokens, and is exhausted after the last of them."""

    def __init__(self, allowed, path=()):
        self.allowed, self.path = allowed, list(path)

    is_finished = False

    def mask(self):
        if self.allowed[-1] in self.path:
            raise GrammarStateError("out of bounds")
        return MaskRow.from_ids(self.allowed, 70)

    def advance(self, token):
        self.path.append(token)

    def rollback(self, count):
        if count:
            del self.path[-count:]

    def fork(self):
        return EndsEarly(self.allowed, self.path)


def test_masks_hold_and_an_exhausted_matcher_ends_its_own_tree(new_source, text_of, head):
    allowed = [3, 5, 7] if head.target_ids is None else head.target_ids[:3].tolist()
    texts = {4: text_of(6, 1), 6: text_of(4, 2)}
    source = new_source()
    show(source, texts, {4: (0, 5), 6: (0, 3)})
    trees = [
        GrowingTree(context(4, texts[4].tokens, matcher=EndsEarly(allowed)), mix=(source.name,), limit=9, width=3),
        GrowingTree(context(6, texts[6].tokens), mix=(source.name,), limit=9, width=3),
    ]
    source.grow(trees)
    drafted = [tree.draft() for tree in trees]
    assert set(drafted[0].tree.tokens[1:]) <= set(allowed)
    assert drafted[0].rejected == 0
    assert len(drafted[1].tree) == 9


def test_medusa_guesses_as_deep_as_its_heads_and_only_from_the_newest_state(target, text_of):
    heads = MedusaHeads(target, num_heads=2, num_blocks=1, share_lm_head=True).double()
    source = MedusaSource(heads, vocab_size=target.vocab_size, num_tokens=target.vocab_size, eos_token_ids=())
    texts = {4: text_of(6, 1), 6: text_of(4, 2)}
    show(source, texts, {4: (0, 5), 6: (0, 2)})  # of 6 an old state
    fresh, old = drafts(source, texts)
    assert len(old.tree) == 1
    assert len(fresh.tree) == 9
    assert max(fresh.tree.depths()) == 2
    best = [torch.topk(heads.logits(head, texts[4].final[4:5])[0], 3).indices.tolist() for head in (0, 1)]
    for node in range(1, 9):
        assert fresh.tree.tokens[node] in best[fresh.tree.depths()[node] - 1]
    source.forget(4)
    assert len(drafts(source, texts)[0].tree) == 1


def test_medusa_continues_what_others_guessed_within_its_reach(target, text_of):
    heads = MedusaHeads(target, num_heads=2, num_blocks=1, share_lm_head=True).double()
    source = MedusaSource(heads, vocab_size=target.vocab_size, num_tokens=target.vocab_size, eos_token_ids=())
    text = text_of(6, 1)
    show(source, {4: text}, {4: (0, 5)})
    drafter = Composition([Written([7], [8, 9]), source], FixedChooser(["written", "medusa"], rows=40))
    (draft,) = drafter.propose([context(4, text.tokens, limit=30)])
    best = torch.topk(heads.logits(1, text.final[4:5])[0], 3).indices.tolist()
    added = [node for node, source in enumerate(draft.sources) if source == "medusa"]
    assert [draft.tree.parents[node] for node in added] == [1, 1, 1]  # nothing below 9, which head 2 would speak about
    assert [draft.tree.tokens[node] for node in added] == best
