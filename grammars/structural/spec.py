"""What a caller asks of texts with several parts, before anything is compiled.

Invariant: what exists is well formed on its face: markers are there, are told apart by their first differing byte, and
counts do not contradict each other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from decoding.errors import ConstraintError
from grammars.constraint import ConstraintSpec, check_text

TAGS = "constraint.structural_tags"
REASONING = "constraint.reasoning"
MAX_TAGS = 256
MAX_MARKER_BYTES = 1024
MAX_PARTS = 1000
MAX_TEXT_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """Free text before the constrained one.

    Attributes:
        begin: opens it; empty where the prompt has done so already.
        end: ends it, at its first occurrence.
        max_tokens: after so many tokens of it nothing but `end` may come; None for no limit.
    """

    begin: str = ""
    end: str = "</think>"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_marker(f"{REASONING}.begin", self.begin)
        _check_marker(f"{REASONING}.end", self.end)
        if not self.end:
            raise ConstraintError(f"{REASONING}.end", "is empty; give the text that ends the reasoning")
        _check_tokens(f"{REASONING}.max_tokens", self.max_tokens)

    def key_parts(self) -> Iterator[str]:
        """What tells two apart, for `ConstraintSpec.key`."""
        yield from ("reasoning", self.begin, self.end, str(self.max_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One kind of constrained part.

    Attributes:
        begin: opens a part; the free text before it may not contain it.
        end: closes it. A part that is no JSON ends at the first occurrence; empty only after JSON that closes itself.
        content: what stands between.
        name: what the answer calls parts of this kind.
        only_objects: the content must be a JSON object, whatever its schema admits.
    """

    begin: str
    end: str
    content: ConstraintSpec
    name: str = ""
    only_objects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuralTags:
    """Free text and constrained parts in turn.

    Attributes:
        tags: the kinds of parts.
        triggers: after one of them in free text a part must begin; each `begin` starts with exactly one. Empty stands
            for the tags' own `begin`.
        least, most: how many parts; no upper bound where None.
        before, between, after: whether free text may stand before the first part, between parts, after the last one.
        separator: between parts that follow each other without free text.
        max_text_tokens: after so many tokens of one run of free text, it must end; None for no limit.
        source: path of the protobuf field, for messages.
    """

    tags: tuple[Tag, ...]
    triggers: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    before: bool = True
    between: bool = True
    after: bool = True
    separator: str = ""
    max_text_tokens: int | None = None
    source: str = TAGS

    def __post_init__(self) -> None:
        if len(self.tags) > MAX_TAGS:
            raise ConstraintError(f"{self.source}.tags", f"has {len(self.tags)} tags; the limit is {MAX_TAGS}")
        for index, tag in enumerate(self.tags):
            for name in ("begin", "end"):
                _check_marker(self.place(index, name), getattr(tag, name))
            if not tag.begin:
                raise ConstraintError(self.place(index, "begin"), "is empty; give the text that opens a part")
        for index, trigger in enumerate(self.triggers):
            _check_marker(f"{self.source}.triggers[{index}]", trigger)
            if not trigger:
                problem = "is empty; give the text after which a part begins"
                raise ConstraintError(f"{self.source}.triggers[{index}]", problem)
        _check_marker(f"{self.source}.separator", self.separator)
        if self.separator and self.between:
            problem = "means nothing where free text may stand between parts; forbid that, or leave it empty"
            raise ConstraintError(f"{self.source}.separator", problem)
        self._check_apart()
        self._check_triggers()
        self._check_counts()
        _check_tokens(f"{self.source}.max_text_tokens", self.max_text_tokens)

    @property
    def all_triggers(self) -> tuple[str, ...]:
        """The triggers, or what they stand for."""
        return self.triggers or tuple(tag.begin for tag in self.tags)

    def place(self, index: int, name: str) -> str:
        """Path of the protobuf field that gives a tag its ``begin`` or ``end``: of tools it is their format."""
        return f"{self.source}.tags[{index}].{name}" if self.source == TAGS else f"{self.source}.format.{name}"

    def contents(self) -> Iterator[ConstraintSpec]:
        """What stands in the parts."""
        return (tag.content for tag in self.tags)

    def normalised(self) -> StructuralTags:
        """An equal one, with contents spelled the one way that `ConstraintSpec.key` hashes."""
        return replace(self, tags=tuple(replace(tag, content=tag.content.normalised()) for tag in self.tags))

    def key_parts(self) -> Iterator[str]:
        """What tells two apart, for `ConstraintSpec.key`."""
        counts = (self.least, self.most, self.before, self.between, self.after, self.max_text_tokens)
        yield json.dumps([self.separator, counts, self.triggers, len(self.tags)])
        for tag in self.tags:
            yield json.dumps([tag.begin, tag.end, tag.name, tag.only_objects])
            yield tag.content.key(fingerprint="", backend="")

    def _check_apart(self) -> None:
        """No begin string starts with another one: it could not be told whether the shorter one ends there."""
        ordered = sorted(range(len(self.tags)), key=lambda index: self.tags[index].begin)
        for shorter, longer in itertools.pairwise(ordered):
            if self.tags[longer].begin.startswith(self.tags[shorter].begin):
                path, kind = self.place(longer, "begin"), "tags" if self.source == TAGS else "tools"
                same = self.tags[longer].begin == self.tags[shorter].begin
                problem = "is also that" if same else "starts with that"
                raise ConstraintError(path, f"{problem} of {kind}[{shorter}]; begin each part in its own way")

    def _check_triggers(self) -> None:
        triggers = self.all_triggers
        for index, tag in enumerate(self.tags):
            if not any(tag.begin.startswith(trigger) for trigger in triggers):
                raise ConstraintError(self.place(index, "begin"), "starts with none of the triggers")
        for index, trigger in enumerate(triggers):
            path = f"{self.source}.triggers[{index}]" if self.triggers else self.place(index, "begin")
            for other, longer in enumerate(triggers):
                if other != index and trigger in longer:
                    kind = "triggers" if self.triggers else "tags"
                    raise ConstraintError(path, f"occurs in that of {kind}[{other}]; a part must begin in one way only")
            if self.tags and not any(tag.begin.startswith(trigger) for tag in self.tags):
                raise ConstraintError(path, "is the beginning of no tag; remove it")

    def _check_counts(self) -> None:
        for name, value in (("min_parts", self.least), ("max_parts", self.most)):
            if value is not None and not 0 <= value <= MAX_PARTS:
                raise ConstraintError(f"{self.source}.{name}", f"is {value}; it must be in [0, {MAX_PARTS}]")
        if self.most is not None and self.least > self.most:
            raise ConstraintError(
                f"{self.source}.min_parts", f"is {self.least}, above max_parts ({self.most}); lower it"
            )


Structure = StructuralTags


def _check_marker(path: str, text: str) -> None:
    check_text(path, text)
    size = len(text.encode())
    if size > MAX_MARKER_BYTES:
        raise ConstraintError(path, f"has {size} bytes; the limit is {MAX_MARKER_BYTES}")


def _check_tokens(path: str, value: int | None) -> None:
    if value is not None and not 1 <= value <= MAX_TEXT_TOKENS:
        raise ConstraintError(path, f"is {value}; it must be in [1, {MAX_TEXT_TOKENS}], or unset for no limit")
