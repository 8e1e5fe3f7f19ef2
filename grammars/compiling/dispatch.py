"""From a constraint to a grammar, by kind and backend. Runs in a worker; runs anywhere else only in tests.

Invariant: a grammar that is returned has its first mask, so that a constraint that no token of the vocabulary can begin
is refused here and not in a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType

from decoding.errors import ConstraintError, GrammarStateError
from grammars.backends.llguidance_kinds import compile_llguidance
from grammars.backends.outlines import compile_outlines
from grammars.compiling.result import Compilation
from grammars.constraint import ConstraintKind, ConstraintSpec
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie
from grammars.structural.compile import compile_plain, compile_structured


def compile_constraint(spec: ConstraintSpec, trie: TokenTrie, *, limits: ConstraintLimits, backend: str) -> Compilation:
    """Compile and compute the first mask. Time and memory are the caller's to bound; ``limits`` bound sizes.

    ``backend`` is a name in `BACKENDS`. Raises ConstraintError (UnsupportedConstraintError for keywords that cannot be
    enforced).
    """
    # Our own automata alone hold others.
    is_structured = spec.structure is not None or spec.reasoning is not None
    compilation = _structured(spec, trie, limits) if is_structured else BACKENDS[backend](spec, trie, limits)
    try:
        compilation.grammar.matcher().mask()
    except GrammarStateError as error:
        raise ConstraintError(spec.field, f"cannot begin: {error}") from error
    return compilation


def _structured(spec: ConstraintSpec, trie: TokenTrie, limits: ConstraintLimits) -> Compilation:
    constraint, layout = compile_structured(spec, trie.vocabulary, limits, trie.characters)
    return Compilation(grammar=constraint.bind(trie), unenforced=constraint.unenforced, layout=layout)


def _espalier(spec: ConstraintSpec, trie: TokenTrie, limits: ConstraintLimits) -> Compilation:
    if spec.kind is ConstraintKind.GRAMMAR:
        return _llguidance(spec, trie, limits)
    constraint = compile_plain(spec, limits, trie.characters)
    return Compilation(grammar=constraint.bind(trie), enforced=constraint.enforced, unenforced=constraint.unenforced)


def _outlines(spec: ConstraintSpec, trie: TokenTrie, limits: ConstraintLimits) -> Compilation:
    if spec.kind is ConstraintKind.GRAMMAR:  # of all backends, llguidance alone has them
        return _llguidance(spec, trie, limits)
    key = spec.key(fingerprint=trie.vocabulary.fingerprint, backend="outlines-core")
    grammar, unenforced = compile_outlines(spec, trie.vocabulary, key=key)
    return Compilation(grammar=grammar, unenforced=unenforced)


def _llguidance(spec: ConstraintSpec, trie: TokenTrie, limits: ConstraintLimits) -> Compilation:
    key = spec.key(fingerprint=trie.vocabulary.fingerprint, backend="llguidance")
    grammar, unenforced = compile_llguidance(spec, trie.vocabulary, limits, key=key)
    return Compilation(grammar=grammar, unenforced=unenforced)


def _xgrammar(spec: ConstraintSpec, trie: TokenTrie, limits: ConstraintLimits) -> Compilation:
    if spec.kind is ConstraintKind.GRAMMAR:
        return _llguidance(spec, trie, limits)
    from grammars.backends.xgrammar import compile_xgrammar  # noqa: PLC0415 - loads torch, and is no dependency

    key = spec.key(fingerprint=trie.vocabulary.fingerprint, backend="xgrammar")
    grammar, unenforced = compile_xgrammar(spec, trie.vocabulary, key=key)
    return Compilation(grammar=grammar, unenforced=unenforced)


def is_installed(backend: str) -> bool:
    """Whether a name in `BACKENDS` can be used here: xgrammar is a package that is not always there."""
    return backend != "xgrammar" or find_spec("xgrammar") is not None


BACKENDS: Mapping[str, Callable[[ConstraintSpec, TokenTrie, ConstraintLimits], Compilation]] = MappingProxyType(
    {"espalier": _espalier, "outlines-core": _outlines, "llguidance": _llguidance, "xgrammar": _xgrammar}
)
