"""The model's tokenizer, off the event loop.

Invariant: no call holds the interpreter's lock for longer than it takes to copy its result. (The batch functions of
`tokenizers` release it; `encode` and `decode` do not.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tokenizers import Tokenizer

from decoding.errors import PreconditionError
from engine.loading.files import ModelFiles
from service.chat import ChatTemplate

T = TypeVar("T")


class PromptTokenizer:
    """Text and chat messages to token ids and back.

    One thread works on prompts, another on what is asked for its own sake, so that a flood of the latter delays no
    generation.
    """

    def __init__(self, files: ModelFiles) -> None:
        self._tokenizer = Tokenizer.from_file(str(files.tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._bos = files.bos_token_id
        self._template = (
            ChatTemplate(files.chat_template, _special_tokens(files)) if files.chat_template is not None else None
        )
        self._prompts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prompts")
        self._others = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` works."""
        return self._template is not None

    async def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Token ids of a text prompt, with the special tokens that the tokenizer puts around it."""
        return await _run(self._prompts, lambda: self._encode(text, add_special_tokens=True))

    async def encode_chat(
        self, messages: Sequence[Mapping[str, str]], tools: Sequence[Mapping[str, object]] | None = None
    ) -> tuple[int, ...]:
        """Token ids of the prompt that the model's template makes of the messages, and of the tools where it shows any.

        Raises PreconditionError where the model has no template, InvalidRequestError where it refuses the messages.
        """
        template = self._template
        if template is None:
            raise PreconditionError("the model has no chat template; send the prompt as text")
        # The template writes the special tokens itself.
        render = template.render
        return await _run(self._prompts, lambda: self._encode(render(messages, tools), add_special_tokens=False))

    async def encode_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The token sequences of each word as it stands and after a space, without repeats."""
        spellings = [spelling for word in words for spelling in (word, f" {word}")]
        encode = self._tokenizer.encode_batch_fast
        encoded = await _run(self._prompts, lambda: encode(spellings, add_special_tokens=False))
        return tuple(dict.fromkeys(tuple(encoding.ids) for encoding in encoded))

    async def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of any text; with ``add_special_tokens`` as of a prompt."""
        return await _run(self._others, lambda: self._encode(text, add_special_tokens=add_special_tokens))

    async def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text that the tokenizer itself makes of the ids."""
        decode = self._tokenizer.decode_batch
        (text,) = await _run(self._others, lambda: decode([list(ids)], skip_special_tokens=skip_special_tokens))
        return text

    def close(self) -> None:
        """Drop what has not begun."""
        for thread in (self._prompts, self._others):
            thread.shutdown(wait=False, cancel_futures=True)

    def _encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids = tuple(encoding.ids)
        # Some tokenizers are told to by tokenizer_config.json alone, which the tokenizers library does not read.
        if add_special_tokens and self._bos is not None and ids[:1] != (self._bos,):
            return (self._bos, *ids)
        return ids


async def _run(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


def _special_tokens(files: ModelFiles) -> dict[str, str]:
    """The texts that tokenizer_config.json names, e.g. ``bos_token``."""
    path = files.directory / "tokenizer_config.json"
    options = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    named = {name: value for name, value in options.items() if name.endswith("_token")}
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
