"""Reasoning, structural tags and tool calls in, one compiled constraint and the layout of its texts out.

Invariant: what one tool or tag asks for and cannot be had is refused, or reported, under its own field.
"""

from __future__ import annotations

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.choices import compile_choices
from grammars.constraint import ConstraintKind, ConstraintSpec, UnenforcedKeyword
from grammars.json_schema.compile import compile_json_object, compile_json_schema
from grammars.limits import ConstraintLimits
from grammars.matching.compile import compile_regex
from grammars.matching.constraint import CompiledConstraint
from grammars.regular.charset import ANY, CharSet
from grammars.structural.contents import JSON_KINDS, compile_content, json_options
from grammars.structural.layout import Layout, TagLayout
from grammars.structural.markers import Marker, MarkerReader
from grammars.structural.reasoning import ReasoningLanguage
from grammars.structural.spec import REASONING, Reasoning, StructuralTags
from grammars.structural.tagged import TaggedLanguage, TagLanguage
from grammars.structural.tools import ToolCalls
from grammars.vocabulary import Vocabulary


def compile_plain(spec: ConstraintSpec, limits: ConstraintLimits, characters: CharSet = ANY) -> CompiledConstraint:
    """A constraint of one part, over ``characters``.

    Raises ConstraintError, also for grammars, which have no source of ours.
    """
    options = json_options(spec, limits, characters)
    match spec.kind:
        case ConstraintKind.JSON_SCHEMA:
            return compile_json_schema(spec.text, options)
        case ConstraintKind.JSON_OBJECT:
            return compile_json_object(options)
        case ConstraintKind.REGEX:
            return compile_regex(spec.text, dialect=spec.dialect.value, characters=characters)
        case ConstraintKind.CHOICES:
            return compile_choices(spec.values, characters)
    raise UnsupportedConstraintError(REASONING, "cannot come before a grammar; use another kind, or drop the reasoning")


def compile_structured(
    spec: ConstraintSpec, vocabulary: Vocabulary, limits: ConstraintLimits, characters: CharSet = ANY
) -> tuple[CompiledConstraint, Layout]:
    """A constraint with tags, tools or reasoning; ``characters`` are those that the vocabulary can write.

    Raises ConstraintError, UnsupportedConstraintError.
    """
    compiler = _Compiler(spec, vocabulary, limits, characters)
    return compiler.constraint(), compiler.layout()


class _Compiler:
    """One compilation. Markers are read first, so that what is wrong with them shows at once."""

    def __init__(
        self, spec: ConstraintSpec, vocabulary: Vocabulary, limits: ConstraintLimits, characters: CharSet
    ) -> None:
        self._spec = spec
        self._limits = limits
        self._characters = characters
        self._reader = MarkerReader(vocabulary, characters)

    def constraint(self) -> CompiledConstraint:
        spec = self._spec
        if spec.structure is None:
            inner = compile_plain(spec, self._limits, self._characters)
        else:
            inner = self._tagged(self._tags(spec.structure))
        if spec.reasoning is None:
            return inner
        return self._after_reasoning(spec.reasoning, inner)

    def layout(self) -> Layout:
        """How texts are taken apart; complete after `constraint`."""
        spec = self._spec
        tags = None if spec.structure is None else self._tags(spec.structure)
        listed = () if tags is None else tags.tags
        return Layout(
            reasoning=None if spec.reasoning is None else (spec.reasoning.begin, spec.reasoning.end),
            tags=tuple(
                TagLayout(name=tag.name, begin=tag.begin, end=tag.end, is_json=tag.content.kind in JSON_KINDS)
                for tag in listed
            ),
            separator="" if tags is None or tags.between else tags.separator,
            has_parts=tags is not None,
            are_calls=isinstance(spec.structure, ToolCalls),
        )

    def _tags(self, structure: StructuralTags | ToolCalls) -> StructuralTags:
        return structure.tags() if isinstance(structure, ToolCalls) else structure

    def _tagged(self, tags: StructuralTags) -> CompiledConstraint:
        path = tags.source
        languages: list[TagLanguage] = []
        unenforced: list[UnenforcedKeyword] = []
        begins = [self._reader.read(tags.place(index, "begin"), tag.begin) for index, tag in enumerate(tags.tags)]
        triggers = [
            self._reader.read(f"{path}.triggers[{index}]", text) for index, text in enumerate(tags.all_triggers)
        ]
        for index, (tag, begin) in enumerate(zip(tags.tags, begins, strict=True)):
            end = self._reader.read(tags.place(index, "end"), tag.end)
            options = json_options(tag.content, self._limits, self._characters)
            content = compile_content(
                tag.content, end, reader=self._reader, options=options, only_objects=tag.only_objects
            )
            unenforced += content.unenforced
            languages.append(TagLanguage(begin=begin.code, end=content.end, content=content.language))
        openings = dict.fromkeys(trigger.opening for trigger in triggers)
        self._check_openings(path, triggers)
        language = TaggedLanguage(
            tags=tuple(languages),
            triggers=tuple(openings),
            forbidden=self._forbidden(triggers),
            separator=self._reader.read(f"{path}.separator", tags.separator).code,
            least=tags.least,
            most=tags.most,
            before=tags.before,
            between=tags.between,
            after=tags.after,
            max_text_tokens=tags.max_text_tokens,
            characters=self._characters,
        )
        return self._compiled(language, tuple(unenforced))

    def _after_reasoning(self, reasoning: Reasoning, inner: CompiledConstraint) -> CompiledConstraint:
        begin = self._reader.read(f"{REASONING}.begin", reasoning.begin)
        end = self._reader.read(f"{REASONING}.end", reasoning.end)
        language = ReasoningLanguage(
            begin=begin.code,
            end=end.code,
            num_opening=len(end.opening),
            forbidden=self._forbidden([end]),
            max_tokens=reasoning.max_tokens,
            then=inner.language,
            characters=self._characters,
        )
        return self._compiled(language, inner.unenforced)

    def _compiled(
        self, language: TaggedLanguage | ReasoningLanguage, unenforced: tuple[UnenforcedKeyword, ...]
    ) -> CompiledConstraint:
        return CompiledConstraint(
            text_key=self._spec.key(fingerprint="", backend=""),
            language=language,
            unenforced=unenforced,
            has_parts=True,
        )

    def _forbidden(self, markers: list[Marker]) -> tuple[bytes, ...]:
        """A special token's text must not be spelled out by other tokens: a reader could not tell the two apart."""
        return tuple(dict.fromkeys(self._reader.spelled(marker.opening) for marker in markers if marker.specials))

    def _check_openings(self, path: str, triggers: list[Marker]) -> None:
        """Triggers are told apart by what comes up to their first special token; there, some may be one."""
        openings = list(dict.fromkeys(trigger.opening for trigger in triggers))
        for opening in openings:
            if any(opening in other for other in openings if other != opening):
                text = self._reader.spelled(opening).decode()
                raise ConstraintError(f"{path}.triggers", f"{text!r} begins one part inside the start of another one")
