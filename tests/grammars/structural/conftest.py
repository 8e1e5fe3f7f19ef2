"""A small vocabulary with special tokens, and texts drawn through the masks of texts with several parts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from grammars.compiling.dispatch import compile_constraint
from grammars.compiling.result import Compilation
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie
from grammars.structural.spec import Reasoning, StructuralTags, Tag
from grammars.structural.tools import Tool, ToolCalls
from grammars.vocabulary import Vocabulary

PIECES = (
    *(bytes((byte,)) for byte in range(256)),
    *(b"<a", b"<a>", b"</", b"a>", b"x<a>", b"</a>y", b"</a><b", b"ab", b"ba</a>", b"<b>{", b'}</b>"', b"{}</b><a>ab"),
    *(b"<tool", b"_call>\n", b'{"name": "', b"add", b'", "arguments": ', b"}\n</tool_call>", b'call>\n{"name": "add'),
    *(b'}\n</tool_call>\n<tool_call>\n{"name"', b"</think>", b"ok</th", b"ink>{", b"\xff\xff", b"\xc3", b"\xa9<a>"),
    *(b'{"q":', b"1}", b'{"q":1}', b"10", b"hm, "),
)
EOS, THINK, CALL, OTHER = (len(PIECES) + index for index in range(4))
SPECIAL_TEXTS = {EOS: "<|end|>", THINK: "</thought>", CALL: "[CALL]", OTHER: "[OTHER]"}
Q = '{"type":"object","properties":{"q":{"type":"integer"}},"required":["q"],"additionalProperties":false}'


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary(
        tokens=(*PIECES, *(b"" for _ in SPECIAL_TEXTS)),
        special_ids=frozenset(SPECIAL_TEXTS),
        eos_ids=(EOS,),
        size=len(PIECES) + len(SPECIAL_TEXTS) + 3,
        special_text=tuple(SPECIAL_TEXTS.items()),
    )


@pytest.fixture(scope="session")
def trie(vocabulary: Vocabulary) -> TokenTrie:
    return TokenTrie.of(vocabulary)


@dataclass(frozen=True, kw_only=True)
class Make:
    """Constraints in short."""

    @staticmethod
    def content(text: str | None = None, **options) -> ConstraintSpec:
        """A regex, unless it looks like a schema; without text, any object."""
        if text is None:
            return ConstraintSpec(kind=ConstraintKind.JSON_OBJECT, **options)
        kind = ConstraintKind.JSON_SCHEMA if text.startswith("{") else ConstraintKind.REGEX
        return ConstraintSpec(kind=kind, text=text, **options)

    @classmethod
    def tag(cls, begin: str, content: str | tuple[str, ...] | None, end: str) -> Tag:
        if isinstance(content, tuple):
            return Tag(begin=begin, end=end, content=ConstraintSpec(kind=ConstraintKind.CHOICES, values=content))
        return Tag(begin=begin, end=end, content=cls.content(content))

    @staticmethod
    def tags(*tags: Tag, reasoning: Reasoning | None = None, **options) -> ConstraintSpec:
        structure = StructuralTags(tags=tags, **options)
        return ConstraintSpec(kind=ConstraintKind.STRUCTURAL_TAGS, structure=structure, reasoning=reasoning)

    @classmethod
    def calls(cls, reasoning: Reasoning | None = None, best_effort=False, tools=None, **options) -> ConstraintSpec:
        tools = {"add": Q, "b": Q.replace("integer", "boolean")} if tools is None else tools
        path = "constraint.tool_calls.tools"
        listed = tuple(
            Tool(name=name, parameters=cls.content(schema, at=f"{path}[{index}].parameters", best_effort=best_effort))
            for index, (name, schema) in enumerate(tools.items())
        )
        structure = ToolCalls(tools=listed, **options)
        return ConstraintSpec(kind=ConstraintKind.TOOL_CALLS, structure=structure, reasoning=reasoning)


@pytest.fixture(scope="session")
def make() -> type[Make]:
    return Make


@pytest.fixture(scope="session")
def compiled(trie: TokenTrie) -> Callable[[ConstraintSpec], Compilation]:
    return lambda spec: compile_constraint(spec, trie, limits=ConstraintLimits(), backend="espalier")


@pytest.fixture(scope="session")
def legal(vocabulary: Vocabulary) -> Callable[..., list[int]]:
    def found(matcher) -> list[int]:
        row = matcher.mask()
        return [token for token in range(vocabulary.size) if token in row]

    return found


@pytest.fixture(scope="session")
def shown() -> Callable[..., bytes]:
    """The bytes of tokens, special ones written out."""
    return lambda tokens: b"".join(SPECIAL_TEXTS[t].encode() if t in SPECIAL_TEXTS else PIECES[t] for t in tokens)


@pytest.fixture(scope="session")
def walk(compiled, legal, shown) -> Callable[..., tuple[str, list[int]] | None]:
    """A text drawn through the masks, and its tokens; None where it did not come to its end in many steps.

    Longer tokens are preferred, and the end where there is one after ``least`` tokens.
    """

    def walked(spec: ConstraintSpec, seed: int, *, least: int = 12, most: int = 400):
        matcher = compiled(spec).grammar.matcher()
        draw = random.Random(seed)
        tokens: list[int] = []
        while len(tokens) < most:
            row = legal(matcher)
            assert row
            long = [token for token in row if token >= 256 and token != EOS]
            token = draw.choice(long if long and draw.random() < 0.7 else row)
            if EOS in row and len(tokens) >= least:
                token = EOS
            matcher.advance(token)
            if token == EOS:
                return shown(tokens).decode(), tokens
            tokens.append(token)
        return None

    return walked
