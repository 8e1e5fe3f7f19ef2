"""What llguidance is asked to compile for each kind of constraint.

Grammars are its own trade and come translated by `grammars.context_free`; regular expressions and choices go through
our reading of them, so that a pattern means the same whatever the backend; schemas it reads itself.
Invariant: a schema's keywords hold or are refused, unless best_effort lets llguidance leave some out, and says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.backends.llguidance import LlguidanceGrammar
from grammars.backends.schema_options import refuse_schema_options
from grammars.constraint import ConstraintKind, ConstraintSpec, UnenforcedKeyword, Whitespace
from grammars.context_free.compile import translate
from grammars.context_free.elimination import plain
from grammars.context_free.printing import OPTIONS, print_language
from grammars.library import MARK, find
from grammars.limits import ConstraintLimits
from grammars.regular import expressions as e
from grammars.regular.automaton import build
from grammars.regular.nodes import LookAhead, LookBehind, Scope, walk
from grammars.regular.regex.compile import compile_regex
from grammars.vocabulary import Vocabulary

_UNKNOWN_KEYS = re.compile(r"Unimplemented keys: \[(.*?)\]")
_WHITESPACE: Mapping[Whitespace, Mapping[str, object]] = {
    Whitespace.COMPACT: {"whitespace_flexible": False},
    Whitespace.SPACED: {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    Whitespace.FLEXIBLE: {"whitespace_flexible": True, "whitespace_pattern": r"[ ]?|\n[ \t]{0,20}"},
}


def compile_grammar(
    spec: ConstraintSpec, vocabulary: Vocabulary, limits: ConstraintLimits, *, key: str
) -> LlguidanceGrammar:
    """Compile a grammar, one of the library included. Raises ConstraintError."""
    text, notation = spec.text, spec.notation
    if text.startswith(MARK):
        ready = find(text.removeprefix(MARK), field=spec.field)
        text, notation = ready.text, ready.notation
    translated = translate(text, notation, start=spec.start, max_nodes=limits.nodes)
    return LlguidanceGrammar(key=key, text=translated, vocabulary=vocabulary, field=spec.field)


def compile_llguidance(
    spec: ConstraintSpec, vocabulary: Vocabulary, limits: ConstraintLimits, *, key: str
) -> tuple[LlguidanceGrammar, tuple[UnenforcedKeyword, ...]]:
    """Compile any kind of constraint.

    Raises ConstraintError for what llguidance cannot compile, UnsupportedConstraintError for keywords that it does not
    enforce, unless the constraint says best_effort.
    """
    refuse_schema_options(spec, "llguidance")
    match spec.kind:
        case ConstraintKind.GRAMMAR:
            return compile_grammar(spec, vocabulary, limits, key=key), ()
        case ConstraintKind.REGEX:
            text = print_language(_language(spec))
        case ConstraintKind.CHOICES:
            text = print_language(e.union(*map(e.literal, spec.values)))
        case ConstraintKind.JSON_OBJECT:
            text = _schema_text({"type": "object"}, spec)
        case ConstraintKind.JSON_SCHEMA:
            text = _schema_text(_parsed(spec), spec)
    try:
        grammar = LlguidanceGrammar(key=key, text=text, vocabulary=vocabulary, field=spec.field)
    except ConstraintError as error:
        if _unenforced(error.bare_message):
            raise UnsupportedConstraintError(spec.field, f"{error.bare_message}; drop it or set best_effort") from error
        raise
    return grammar, tuple(keyword for warning in grammar.warnings for keyword in _unenforced(warning))


def _language(spec: ConstraintSpec) -> e.Expression:
    expression = compile_regex(spec.text, dialect=spec.dialect.value, field=spec.field)
    if any(isinstance(node, (Scope, LookAhead, LookBehind)) for node in walk(expression)):
        expression = plain(expression, shortest=False, field=spec.field)
    if build(expression, field=spec.field).is_empty:
        raise ConstraintError(spec.field, "matches no text at all; check its anchors and look-around")
    return expression


def _parsed(spec: ConstraintSpec) -> object:
    try:
        return json.loads(spec.text)
    except ValueError as error:
        raise ConstraintError(spec.field, f"is not JSON: {error}") from error


def _schema_text(schema: object, spec: ConstraintSpec) -> str:
    if schema is False:
        raise ConstraintError(spec.field, "allows no value")
    if schema is not True and not isinstance(schema, dict):
        raise ConstraintError(spec.field, "is neither an object nor a boolean")
    options = {**_WHITESPACE[spec.whitespace], "lenient": spec.best_effort}
    known = {**schema, "x-guidance": options} if isinstance(schema, dict) else {"x-guidance": options}
    return f"{OPTIONS}start: %json {json.dumps(known)}\n"


def _unenforced(message: str) -> list[UnenforcedKeyword]:
    """The keywords that a message of llguidance says it does not know; it does not say where they stand."""
    reason = "llguidance does not enforce it"
    if found := _UNKNOWN_KEYS.search(message):
        keys = json.loads(f"[{found[1]}]")
        return [UnenforcedKeyword(pointer="", keyword=key, reason=reason) for key in keys]
    return [UnenforcedKeyword(pointer="", keyword="format", reason=reason)] if "Unknown format" in message else []
