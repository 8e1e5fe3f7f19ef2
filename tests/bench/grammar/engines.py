"""Other engines behind the adapters' protocol, beside ours in `tests.bench.grammar_adapter`.

An adapter has ``__init__(vocabulary)``, ``compile(kind, text)`` and ``matcher(compiled)``; a matcher has ``bits``
(int32 words of a mask), ``mask()``, which fills them, and ``accept(token) -> bool``. Invariant: every engine works with
one thread and without a cache of compiled schemas.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tests.bench.grammar.vocabularies import BenchVocabulary


class BenchMatcher(Protocol):
    """One walk through a grammar."""

    bits: npt.NDArray[np.int32]

    def mask(self) -> None: ...

    def accept(self, token: int) -> bool: ...


class BenchEngine(Protocol):
    """A grammar engine over one vocabulary."""

    def compile(self, kind: str, text: str) -> Any: ...

    def matcher(self, grammar: Any) -> BenchMatcher: ...


class Llguidance:
    """Masks of canonical tokens where text is forced, as the library does by itself."""

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import llguidance  # noqa: PLC0415  engines are imported by the workers that run them

        class Tokens(SimpleNamespace):
            def __call__(self, text: bytes | str) -> list[int]:
                return vocabulary.encode(text.decode() if isinstance(text, bytes) else text)

        tokens = Tokens(
            eos_token_id=vocabulary.eos,
            bos_token_id=None,
            tokens=list(vocabulary.tokens),
            special_token_ids=sorted(vocabulary.special),
        )
        self._library = llguidance
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens))
        self._words = (vocabulary.size + 31) // 32

    def compile(self, kind: str, text: str) -> Any:
        assert kind == "json"
        matcher = self._library.LLMatcher
        compiled = matcher(self._tokenizer, matcher.grammar_from_json_schema(text), log_level=0)
        if compiled.is_error():
            raise ValueError(compiled.get_error())
        return compiled

    def matcher(self, grammar: Any) -> BenchMatcher:
        return _LlguidanceWalk(grammar.deep_copy(), self._words)


class _LlguidanceWalk:
    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher = matcher
        self.bits = np.zeros(words, np.int32)
        self._where = (self.bits.ctypes.data, self.bits.nbytes)

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(*self._where)

    def accept(self, token: int) -> bool:
        return self._matcher.consume_token(token)


class Xgrammar:
    """Without strict mode, which would forbid keys that a schema allows."""

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import xgrammar  # noqa: PLC0415

        tokenizer = xgrammar.TokenizerInfo(
            list(vocabulary.tokens),
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=[vocabulary.eos],
        )
        self._library = xgrammar
        self._compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
        self._words = (vocabulary.size + 31) // 32

    def compile(self, kind: str, text: str) -> Any:
        assert kind == "json"
        return self._compiler.compile_json_schema(text, strict_mode=False)

    def matcher(self, grammar: Any) -> BenchMatcher:
        return _XgrammarWalk(self._library.GrammarMatcher(grammar), self._words)


class _XgrammarWalk:
    def __init__(self, matcher: Any, words: int) -> None:
        import torch  # noqa: PLC0415

        self._matcher = matcher
        self._mask = torch.full((1, words), -1, dtype=torch.int32)
        self.bits = self._mask.numpy()[0]

    def mask(self) -> None:
        if not self._matcher.fill_next_token_bitmask(self._mask):
            self._mask.fill_(-1)  # it leaves the mask alone where everything is legal

    def accept(self, token: int) -> bool:
        return self._matcher.accept_token(token)


class OutlinesCore:
    """The schema as a regular expression, its automaton whole in advance."""

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import outlines_core  # noqa: PLC0415

        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(vocabulary.tokens):
            if text and token not in vocabulary.special:
                ids.setdefault(text, []).append(token)
        self._library = outlines_core
        self._vocabulary = outlines_core.Vocabulary(vocabulary.eos, ids)
        self._words = (vocabulary.size + 31) // 32

    def compile(self, kind: str, text: str) -> Any:
        from outlines_core.json_schema import build_regex_from_schema  # noqa: PLC0415

        assert kind == "json"
        return self._library.Index(build_regex_from_schema(text), self._vocabulary)

    def matcher(self, grammar: Any) -> BenchMatcher:
        return _OutlinesWalk(self._library.Guide(grammar), self._words)


class _OutlinesWalk:
    def __init__(self, guide: Any, words: int) -> None:
        self._guide = guide
        self.bits = np.zeros(words, np.int32)
        self._where = (self.bits.ctypes.data, words, 4)

    def mask(self) -> None:
        self._guide.write_mask_into(*self._where)

    def accept(self, token: int) -> bool:
        try:
            self._guide.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True


_HERE, _OURS = "tests.bench.grammar.engines", "tests.bench.grammar_adapter"
ENGINES = {
    "espalier": (_OURS, "Espalier", "numba"),
    "espalier-any-order": (_OURS, "EspalierAnyOrder", "numba"),
    "espalier-format-notes": (_OURS, "EspalierFormatNotes", "numba"),
    "llguidance": (_HERE, "Llguidance", "llguidance"),
    "xgrammar": (_HERE, "Xgrammar", "xgrammar"),
    "outlines-core": (_HERE, "OutlinesCore", "outlines-core"),
}
"""By name: module and class of the adapter, and the package that it needs."""


def make(name: str, vocabulary: BenchVocabulary) -> BenchEngine:
    """The engine of that name over a vocabulary."""
    module, adapter, _ = ENGINES[name]
    return getattr(importlib.import_module(module), adapter)(vocabulary)


def check_installed(name: str) -> None:
    """Exit with the command that installs an engine's package where it is missing."""
    package = ENGINES[name][2]
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        raise SystemExit(
            f"{package} is not installed; install it (pip install -c constraints.txt {package}) or leave it out with"
            " --engines"
        )
