from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading

import psutil
import pytest
from rich.console import Console

from service.cli import demo
from service.cli.child_server import ChildServerError, child_server, free_loopback_address
from service.cli.demo_requests import choices_check, free_chat, json_check, regex_check, scenarios
from service.client import Request
from service.v1 import common_pb2, generation_pb2

EVENT = generation_pb2.GenerateStreamResponse
VALID = {
    "Person": '{"name": "Ann", "birthplace": "X", "birth_year": 1906, "known_for": "y"}',
    "Recipe": '{"title": "t", "course": "main", "minutes": 5, "ingredients": [{"name": "a", "amount": 1, "unit": "g"}, '
    '{"name": "b", "amount": 2, "unit": "piece"}], "steps": ["stir"]}',
    "regex": "1969-07-20",
    "choices": "negative",
    None: "An espalier is a tree.",
}

SERVER = """
    import sys, time
    from concurrent import futures
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    class Health(health_pb2_grpc.HealthServicer):
        def Check(self, request, context):
            return health_pb2.HealthCheckResponse(status=sys.argv[2])
    server = grpc.server(futures.ThreadPoolExecutor())
    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    server.add_insecure_port(sys.argv[1])
    server.start()
    print("started", flush=True)
    time.sleep(60)
"""


def kind_of(request) -> str | None:
    kind = request.constraint.WhichOneof("kind")
    if kind == "json_schema":
        return "Recipe" if '"Recipe"' in request.constraint.json_schema else "Person"
    return kind


def answers(server, texts, *, concurrent=5, completeness=common_pb2.COMPLETENESS_COMPLETE):
    """Scripts streams that begin only once `concurrent` of them are there."""
    barrier = threading.Barrier(concurrent)

    def answer(request, context):
        barrier.wait(30)
        yield EVENT(started=generation_pb2.StreamStarted(prompt_tokens=3))
        yield EVENT(delta=generation_pb2.StreamDelta(text=texts[kind_of(request.request)], token_ids=[1, 2]))
        finished = generation_pb2.StreamFinished(
            finish_reason=common_pb2.FINISH_REASON_EOS,
            completeness=completeness,
            usage=common_pb2.Usage(completion_tokens=2),
        )
        yield EVENT(finished=finished)

    server.play("GenerateStream", answer)


def ask(server):
    console = Console(record=True, width=120)
    return asyncio.run(demo._ask_all(server.address, console)), console


def test_four_constrained_requests_run_at_once_and_all_kinds_are_there(server):
    answers(server, VALID)
    outcomes, console = ask(server)
    assert [outcome.problem for outcome in outcomes] == [""] * 5
    assert {kind_of(request.request) for request in server.requests} == set(VALID)
    assert VALID[None] in console.export_text()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Person", '{"name": "Ann"}'),
        ("Person", '{"name": "Ann", "birthplace": "X", "birth_year": 99999, "known_for": "y"}'),
        ("Recipe", "{"),
        ("regex", "1969-13-20"),
        ("choices", "negativ"),
        (None, "  "),
    ],
)
def test_an_invalid_answer_is_found(server, kind, text):
    answers(server, {**VALID, kind: text})
    outcomes, _ = ask(server)
    assert sum(bool(outcome.problem) for outcome in outcomes) == 1


def test_an_incomplete_answer_is_not_valid(server):
    answers(server, VALID, completeness=common_pb2.COMPLETENESS_VALID_PREFIX)
    outcomes, _ = ask(server)
    assert all("incomplete" in outcome.problem for outcome in outcomes)


def test_panels_and_table_show_text_check_ttft_and_speed(server):
    answers(server, {**VALID, "choices": "negativ"})
    outcomes, _ = ask(server)
    console = Console(record=True, width=120, file=io.StringIO())
    for outcome in outcomes:
        console.print(demo._panel(outcome))
    console.print(demo._table(outcomes))
    text = console.export_text()
    for expected in ('"birth_year": 1906', "1969-07-20", "'negativ' is none of", "TTFT", "tokens/s", "✓ jsonschema"):
        assert expected in text


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (json_check(next(s.schema for s in scenarios() if s.schema)), VALID["Person"], "{}"),
        (regex_check("a+"), "aa", "aab"),
        (choices_check(("a", "b")), "b", "c"),
        (free_chat().check, "x", ""),
    ],
)
def test_checks(check, valid, invalid):
    assert check(valid) == ""
    assert check(invalid) != ""


def test_every_scenario_is_a_request_that_the_client_accepts():
    for scenario in (*scenarios(), free_chat()):
        assert Request(schema=scenario.schema, **scenario.request).message.chat.messages


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "fake_server.py"
    file.write_text(textwrap.dedent(SERVER))
    return file


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_child_serves_inside_the_context_and_is_gone_after_it(script, monkeypatch):
    children = []
    start = subprocess.Popen

    def remembering(*arguments, **options):
        children.append(start(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", remembering)
    address = free_loopback_address()
    command = [sys.executable, str(script), address, "SERVING"]
    with child_server(command, address, startup_timeout=60):
        assert alive(children[-1].pid)
    assert not alive(children[-1].pid)
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), child_server(command, address, startup_timeout=60):
            raise error
        assert not alive(children[-1].pid)


def test_a_child_that_ends_before_it_serves_is_an_error():
    with (
        pytest.raises(ChildServerError, match="exit code 7"),
        child_server([sys.executable, "-c", "raise SystemExit(7)"], free_loopback_address(), startup_timeout=60),
    ):
        pass


def test_a_child_that_never_serves_is_stopped(script):
    address = free_loopback_address()
    with (
        pytest.raises(ChildServerError, match="--startup-timeout"),
        child_server([sys.executable, str(script), address, "NOT_SERVING"], address, startup_timeout=1.0),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_too(script, number):
    """The real command, whose child is a server that stays NOT_SERVING."""
    code = f"""
        import sys
        from service.cli import demo
        real = demo.child_server
        def fake(command, address, **options):
            return real([sys.executable, {str(script)!r}, address, "NOT_SERVING"], address, **options)
        demo.child_server = fake
        sys.exit(demo.main([]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = iter(process.stdout.readline, "")
    assert any(line == "started\n" for line in lines)
    (child,) = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not alive(child.pid)
