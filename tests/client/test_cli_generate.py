from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import grpc
import psutil
import pytest
from grpc_status import rpc_status

from decoding.errors import CapacityError, InvalidRequestError
from service.cli import generate
from service.client import (
    Options,
    Reasoning,
    Request,
    StructuralTags,
    Tag,
    Tool,
    ToolCallFormat,
    ToolCalls,
)
from service.errors import to_status
from service.v1 import common_pb2, generation_pb2

EVENT = generation_pb2.GenerateStreamResponse


def play(server, *texts, completeness=common_pb2.COMPLETENESS_COMPLETE, reason=common_pb2.FINISH_REASON_EOS, **options):
    """Scripts one stream: each text in two deltas, one sample per text."""
    message = options.pop("message", "")

    def answer(request, context):
        yield EVENT(started=generation_pb2.StreamStarted(request_id="r", model="tiny", seed=9, **options))
        for index, text in enumerate(texts):
            for part in (text[:2], text[2:]):
                yield EVENT(delta=generation_pb2.StreamDelta(index=index, text=part, token_ids=[1]))
            finished = generation_pb2.StreamFinished(
                index=index, finish_reason=reason, completeness=completeness, message=message
            )
            finished.usage.CopyFrom(common_pb2.Usage(prompt_tokens=3, completion_tokens=2))
            yield EVENT(finished=finished)

    server.play("GenerateStream", answer)


@pytest.fixture
def run(server, capsys):
    """Runs the command against the scripted server: exit code, stdout, stderr."""

    def call(*argv):
        try:
            code = generate.main([*argv, "--address", server.address])
        except SystemExit as exit_:
            code = exit_.code
        return (code, *capsys.readouterr())

    return call


def sent(server):
    return server.requests[-1].request


def test_the_text_goes_to_stdout_and_nothing_else(server, run):
    play(server, "Hello, wörld")
    assert run("Say hello") == (0, "Hello, wörld\n", "")
    assert sent(server) == Request("Say hello", best_effort=False, priority=0).message


def test_every_flag_of_a_request_arrives(server, run):
    play(server, "x")
    flags = """--max-tokens 7 --min-tokens 1 --temperature 0.5 --top-k 4 --top-p 0.75 --min-p 0.25
        --repetition-penalty 1.5
        --presence-penalty -0.5 --frequency-penalty 0.25 --logit-bias 3=-2.5 --logit-bias 4=1 --bad-word foo
        --bad-word bar --stop END --stop STOP --seed 5 --logprobs 2 --ignore-eos -n 3 --priority 2 --tenant t --model m
        --regex a+ --whitespace spaced --best-effort --property-order any --formats annotate --integral-floats
        --regex-dialect ecma --drafter forced+ngram --max-draft-tokens 9 --tree-width 3
        --finish-within-limit"""
    run("p", *flags.split())
    expected = {
        "max_tokens": 7,
        "min_tokens": 1,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.75,
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.25,
        "logit_bias": {3: -2.5, 4: 1.0},
        "bad_words": ["foo", "bar"],
        "stop": ["END", "STOP"],
        "seed": 5,
        "logprobs": 2,
        "ignore_eos": True,
        "n": 3,
        "priority": 2,
        "tenant": "t",
        "model": "m",
        "regex": "a+",
        "whitespace": "spaced",
        "best_effort": True,
        "property_order": "any",
        "formats": "annotate",
        "integral_floats": True,
        "regex_dialect": "ecma",
        "drafter": "forced+ngram",
        "max_draft_tokens": 9,
        "tree_width": 3,
        "finish_within_limit": True,
    }
    assert sent(server) == Request("p", **expected).message
    missing = set(Options.__annotations__) - set(expected)
    kinds = {"choices", "json_object", "grammar", "tool_calls", "structural_tags"}
    assert missing == {*kinds, "notation", "start", "reasoning", "chat", "tokens"}


TOOL = {"name": "f", "description": "d", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--tools", json.dumps([TOOL])], {"tool_calls": ToolCalls(tools=[Tool(**TOOL)])}),
        (
            ["--tools", json.dumps([{"type": "function", "function": TOOL}]), "--tool-choice", "none"],
            {"tool_calls": ToolCalls(tools=[Tool(**TOOL)], choice="none")},
        ),
        (
            ["--tools", json.dumps({"tools": [TOOL], "format": {"begin": "<{name}>"}}), "--tool-choice", "f"],
            {"tool_calls": ToolCalls(tools=[Tool(**TOOL)], name="f", format=ToolCallFormat(begin="<{name}>"))},
        ),
        (
            ["--tools", json.dumps([TOOL]), "--tool-choice", "required", "--max-calls", "2"],
            {"tool_calls": ToolCalls(tools=[Tool(**TOOL)], choice="required", max_calls=2)},
        ),
        (
            ["--structural-tags", json.dumps({"tags": [{"begin": "<", "end": ">", "regex": "a"}], "max_parts": 2})],
            {"structural_tags": StructuralTags(tags=[Tag(begin="<", end=">", regex="a")], max_parts=2)},
        ),
        (["--regex", "a", "--reasoning"], {"regex": "a", "reasoning": Reasoning()}),
        (
            [
                "--regex",
                "a",
                "--reasoning",
                "--reasoning-begin",
                "<",
                "--reasoning-end",
                ">",
                "--reasoning-tokens",
                "3",
            ],
            {"regex": "a", "reasoning": Reasoning(begin="<", end=">", max_tokens=3)},
        ),
    ],
)
def test_texts_of_several_parts_arrive(server, run, flags, expected):
    play(server, "x")
    run("p", *flags)
    assert sent(server) == Request("p", best_effort=False, priority=0, **expected).message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tool-choice", "auto"], "need --tools"),
        (["--max-calls", "2"], "need --tools"),
        (["--reasoning-end", "x"], "need --reasoning"),
        (["--tools", "{"], "is no JSON"),
        (["--tools", "no-such-file"], "cannot read"),
        (["--tools", '{"tools": 1}'], "are no list"),
        (["--tools", '[{"nam": "f"}]'], "Tool has no nam"),
        (["--tools", '[{"description": "f"}]'], "name"),
        (["--tools", "[3]"], "is no object"),
        (["--structural-tags", '{"tags": [{"begin": "<"}], "most": 2}'], "StructuralTags has no most"),
    ],
)
def test_wrong_files_and_flags_of_several_parts_are_named(run, flags, message):
    code, _, err = run("p", *flags)
    assert code == 2
    assert message in err


def test_the_prompt_comes_from_a_file_or_from_standard_input(server, run, tmp_path, monkeypatch):
    play(server, "x")
    file = tmp_path / "prompt.txt"
    file.write_text("über\nzwei\n\n", encoding="utf-8")
    run("--file", str(file))
    assert sent(server).text == "über\nzwei\n"
    for flags in ([], ["--file", "-"]):
        with file.open(encoding="utf-8") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            run(*flags)
        assert sent(server).text == "über\nzwei\n"


def test_chat_messages(server, run):
    play(server, "x")
    run("Hi", "--chat")
    assert sent(server) == Request(chat=[{"role": "user", "content": "Hi"}]).message
    run("Hi", "--system", "Be brief.")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert sent(server) == Request(chat=turns).message


def test_constraints(server, run, tmp_path):
    play(server, "x")
    file = tmp_path / "schema.json"
    file.write_text('{"type": "string"}', encoding="utf-8")
    grammar = tmp_path / "grammar.lark"
    grammar.write_text('start: "a"\n', encoding="utf-8")
    long = "root ::= " + " | ".join(f'"{number}"' for number in range(1000))
    cases = [
        (["--schema", str(file)], {"schema": '{"type": "string"}'}),
        (["--schema", ' {"type": "null"}'], {"schema": ' {"type": "null"}'}),
        (["--choices", "yes,no,may be"], {"choices": ["yes", "no", "may be"]}),
        (["--choice", "a,b", "--choice", "c"], {"choices": ["a,b", "c"]}),
        (["--json-object"], {"json_object": True}),
        (["--grammar", str(grammar), "--notation", "lark"], {"grammar": 'start: "a"\n', "notation": "lark"}),
        (["--grammar", 'a ::= "b"\n', "--start", "a"], {"grammar": 'a ::= "b"\n', "start": "a"}),
        (["--grammar", long], {"grammar": long}),
        (["--grammar", "@sql"], {"grammar": "@sql"}),
    ]
    for flags, options in cases:
        run("p", *flags)
        assert sent(server) == Request("p", **options).message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["p", "--regex", "a", "--json-object"], "not allowed with"),
        (["p", "--schema", "/nowhere/schema.json"], "cannot read /nowhere/schema.json"),
        (["--file", "/nowhere/prompt"], "no prompt"),
        (["p", "--file", "x"], "drop one"),
        (["p", "--logit-bias", "x"], "is not ID=BIAS"),
        (["p", "--temperature", "warm"], "invalid float"),
        (["p", "--temp", "1"], "unrecognized arguments"),
    ],
)
def test_a_command_line_that_cannot_be_understood_exits_2(server, run, argv, message):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert message in err
    assert server.requests == []


def test_a_prompt_that_is_not_text_exits_2(server, run, tmp_path):
    file = tmp_path / "prompt"
    file.write_bytes(b"\xff\xfe")
    assert run("--file", str(file))[0] == 2


def test_a_terminal_is_not_read_in_silence(server, run, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, _, err = run()
    assert code == 2
    assert "on standard input" in err


def test_json_output(server, run):
    unenforced = [common_pb2.UnenforcedKeyword(pointer="/not", keyword="not", reason="why")]
    play(server, "abc", "def", unenforced=unenforced)
    code, out, err = run("p", "--json", "-n", "2")
    assert code == 0
    assert "not enforced: not at /not: why" in err
    document = json.loads(out)
    timing = {name: document.pop(name) for name in ("ttft_s", "latency_s", "tokens_per_second")}
    samples = document.pop("samples")
    assert document == {
        "request_id": "r",
        "model": "tiny",
        "text": "abc",
        "finish_reason": "eos",
        "complete": True,
        "seed": 9,
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "cached_tokens": 0,
            "drafted_tokens": 0,
            "accepted_tokens": 0,
            "forced_tokens": 0,
            "preemptions": 0,
            "rejected_by_model_tokens": 0,
            "rejected_by_grammar_tokens": 0,
            "accepted_per_position": [],
            "draft_ms": 0.0,
            "mask_ms": 0.0,
            "forward_ms": 0.0,
            "sample_ms": 0.0,
        },
        "unenforced": [{"pointer": "/not", "keyword": "not", "reason": "why", "field": ""}],
    }
    assert [(sample["index"], sample["text"], sample["token_ids"]) for sample in samples] == [
        (0, "abc", [1, 1]),
        (1, "def", [1, 1]),
    ]
    assert 0 < timing["ttft_s"] <= timing["latency_s"]
    assert timing["tokens_per_second"] == pytest.approx(4 / timing["latency_s"])


def test_json_output_carries_logprobs_as_numbers_and_bytes(server, run):
    token = common_pb2.TokenLogprob(token_id=4, token=b"\xc3", logprob=-0.5)
    position = common_pb2.PositionLogprobs(chosen=token, top=[token])
    server.play(
        "GenerateStream",
        lambda request, context: [
            EVENT(started=generation_pb2.StreamStarted()),
            EVENT(delta=generation_pb2.StreamDelta(token_ids=[4], logprobs=[position])),
            EVENT(finished=generation_pb2.StreamFinished(finish_reason=common_pb2.FINISH_REASON_EOS)),
        ],
    )
    _, out, _ = run("p", "--json", "--logprobs", "1")
    plain = {"token_id": 4, "token": [0xC3], "logprob": -0.5}
    assert json.loads(out)["samples"][0]["logprobs"] == [{"chosen": plain, "top": [plain]}]


def test_several_samples_are_printed_one_after_the_other(server, run):
    play(server, "one", "two")
    assert run("p", "-n", "2") == (0, "one\ntwo\n", "")
    play(server, "one")
    assert run("p", "--no-stream") == (0, "one\n", "")


def test_a_valid_prefix_exits_3(server, run):
    play(server, '{"a', completeness=common_pb2.COMPLETENESS_VALID_PREFIX, reason=common_pb2.FINISH_REASON_LENGTH)
    for flags in ([], ["--no-stream"]):
        code, out, err = run("p", "--json-object", *flags)
        assert (code, out) == (3, '{"a\n')
        assert "valid prefix" in err


def test_free_text_cut_by_length_exits_0(server, run):
    play(server, "abc", completeness=common_pb2.COMPLETENESS_UNSPECIFIED, reason=common_pb2.FINISH_REASON_LENGTH)
    assert run("p") == (0, "abc\n", "")


def test_a_sample_that_failed_alone_exits_1(server, run):
    options = {"completeness": common_pb2.COMPLETENESS_VALID_PREFIX, "reason": common_pb2.FINISH_REASON_NO_LEGAL_TOKEN}
    play(server, "{", message="bad_words leave no token", **options)
    code, _, err = run("p", "--json-object")
    assert code == 1
    assert "bad_words leave no token" in err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            InvalidRequestError("sampling.temperature", "value -1.0 is outside [0, 100]"),
            "value -1.0 is outside [0, 100]",
        ),
        (CapacityError("the queue is full", 2.5), "try again in 2.5 s"),
    ],
)
def test_the_server_s_message_goes_to_stderr(server, run, error, said):
    status = rpc_status.to_status(to_status(error))
    server.play("GenerateStream", lambda request, context: context.abort_with_status(status))
    code, out, err = run("p", "--temperature", "-1")
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err


def test_the_client_s_own_refusal_exits_1(server, run):
    code, _, err = run("p", "--max-tokens", "-1")
    assert code == 1
    assert "sampling.max_tokens" in err
    assert server.requests == []


def test_no_server_exits_1_and_says_how_to_start_one(capsys):
    assert generate.main(["p", "--address", "127.0.0.1:1"]) == 1
    assert "`espalier serve` starts one" in capsys.readouterr().err


@pytest.fixture
def endless(server):
    ended = threading.Event()

    def answer(request, context):
        context.add_callback(ended.set)
        yield EVENT(started=generation_pb2.StreamStarted())
        while not ended.wait(0.01):
            yield EVENT(delta=generation_pb2.StreamDelta(text="word ", token_ids=[1]))

    server.play("GenerateStream", answer)
    return ended


def start(server, *argv, stdout=subprocess.PIPE, unbuffered="1", **options):
    command = [sys.executable, "-m", "service.cli.main", "generate", *(argv or ["p"]), "--address", server.address]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, **options)


def test_an_interrupt_cancels_the_request_and_exits_130(server, endless):
    process = start(server)
    assert process.stdout.read(5) == "word "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert endless.wait(10)
    assert "Traceback" not in err


def test_an_interrupt_while_the_prompt_is_read_exits_130_too(server):
    process = start(server, "--file", "-", stdin=subprocess.PIPE)
    process.stdin.write("x" * 1_000_000)  # more than a pipe holds: once it is written, the command is reading
    process.stdin.flush()
    while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:  # until it waits for more
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.communicate() == ("", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_output_that_cannot_be_written_exits_1_and_says_so(server, unbuffered, flags):
    play(server, "text")
    with open("/dev/full", "w") as full:  # noqa: PTH123  (a device)
        process = start(server, "p", *flags, stdout=full, unbuffered=unbuffered)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == "espalier: the output cannot be written: No space left on device\n"


def test_a_reader_that_goes_away_ends_it_quietly(server, endless):
    process = start(server)
    assert process.stdout.read(5) == "word "
    process.stdout.close()
    assert process.wait(30) == 141
    assert endless.wait(10)
    assert process.stderr.read() == ""
    process.stderr.close()


def test_text_appears_as_it_comes(server):
    """The second delta is sent only after the first was read from the command's stdout."""
    seen = threading.Event()

    def answer(request, context):
        yield EVENT(started=generation_pb2.StreamStarted())
        yield EVENT(delta=generation_pb2.StreamDelta(text="first ", token_ids=[1]))
        if not seen.wait(30):
            context.abort(grpc.StatusCode.INTERNAL, "the first delta was not printed")
        yield EVENT(delta=generation_pb2.StreamDelta(text="second", token_ids=[1]))
        yield EVENT(finished=generation_pb2.StreamFinished(finish_reason=common_pb2.FINISH_REASON_EOS))

    server.play("GenerateStream", answer)
    process = start(server)
    assert process.stdout.read(6) == "first "
    seen.set()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "second\n", "")
