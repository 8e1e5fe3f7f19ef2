"""`espalier generate`: one prompt, one answer.

Invariant: stdout carries the text (or one JSON object) and nothing else; what there is to say about it goes to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.cli.generate_flags import client_options, make_parser
from service.cli.outcome import ExitCode, finish, say
from service.cli.stopwatch import Stopwatch, Timing
from service.client import ChatMessage, Client, Completeness, FinishReason, Generation, Options, Sample

FAILED = (FinishReason.NO_LEGAL_TOKEN, FinishReason.ERROR, FinishReason.CANCELLED)


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code is an ExitCode."""
    return finish(lambda: _read_and_run(argv))


def _read_and_run(argv: Sequence[str]) -> int:
    made = make_parser()
    options = made.parse_args(argv)
    try:
        prompt = _prompt(options)
    except (OSError, ValueError) as error:
        made.error(f"no prompt: {error}")
    return _run(options, prompt, client_options(options, made.error))


def _prompt(options: argparse.Namespace) -> str:
    """The prompt's text. Raises OSError and ValueError, where it is missing, given twice, or not UTF-8."""
    if options.prompt is not None and options.file is not None:
        raise ValueError("it is given as an argument and by --file; drop one")
    if options.prompt is not None:
        text: str = options.prompt
        return text
    if options.file not in (None, "-"):
        return Path(options.file).read_text(encoding="utf-8").removesuffix("\n")
    if options.file is None and sys.stdin.isatty():
        raise ValueError("give it as an argument, with --file, or on standard input")
    return sys.stdin.read().removesuffix("\n")


def _run(options: argparse.Namespace, prompt: str, request: Options) -> int:
    live = not (options.as_json or options.no_stream or (options.n or 1) > 1)
    if options.as_chat or options.system is not None:
        request["chat"] = _messages(options.system, prompt)
    with Client(options.address, timeout=options.timeout) as client:
        watch = Stopwatch()
        stream = client.stream(None if "chat" in request else prompt, schema=options.schema, **request)
        with stream:
            for event in stream:
                watch.see(event)
                if live:
                    print(event.text, end="", flush=True)
        generation = stream.result()
    if options.as_json:
        timing = watch.timing(generation.usage.completion_tokens)
        print(json.dumps(_as_json(generation, timing), ensure_ascii=False))
    elif live:
        print()
    else:
        for sample in generation.samples:
            print(sample.text)
    return _report(generation)


def _messages(system: str | None, prompt: str) -> list[ChatMessage]:
    first: list[ChatMessage] = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": prompt}]


def _report(generation: Generation) -> ExitCode:
    """Say what is wrong with the answer; the exit code is the worst sample's."""
    for keyword in generation.unenforced:
        place = f"{keyword.field} {keyword.pointer or '/'}".lstrip()
        say(f"not enforced: {keyword.keyword} at {place}: {keyword.reason}")
    codes = {_judge(sample) for sample in generation.samples}
    return next(code for code in (ExitCode.FAILED, ExitCode.CUT, ExitCode.OK) if code in codes)


def _judge(sample: Sample) -> ExitCode:
    if sample.finish_reason in FAILED:
        say(f"sample {sample.index} ended early ({sample.finish_reason.value}): {sample.message}")
        return ExitCode.FAILED
    if sample.completeness is Completeness.VALID_PREFIX:
        say(f"sample {sample.index} was cut ({sample.finish_reason.value}): it is a valid prefix of what was asked for")
        return ExitCode.CUT
    return ExitCode.OK


def _as_json(generation: Generation, timing: Timing) -> dict[str, Any]:
    """First sample at the top, all of them under `samples`, times in seconds."""
    return {
        "request_id": generation.request_id,
        "model": generation.model,
        "text": generation.text,
        "finish_reason": generation.finish_reason.value,
        "complete": generation.complete,
        "seed": generation.seed,
        "usage": _plain(generation.usage),
        **_plain(timing),
        "unenforced": [_plain(keyword) for keyword in generation.unenforced],
        "samples": [{**_plain(sample), "complete": sample.complete} for sample in generation.samples],
    }


def _plain(value: Any) -> Any:
    """Results as JSON values: enums by their value, a token's bytes as a list, parsers left out."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name != "parser"]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | bytes):
        return [_plain(item) for item in value]
    return value
