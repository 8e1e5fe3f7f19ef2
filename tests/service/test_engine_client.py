"""The engine in a real process of its own, a fake one that misbehaves where it is asked to."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from decoding.errors import CapacityError, EspalierError, ModelLoadError, UnavailableError
from decoding.finish import FinishReason
from decoding.params import SamplingParams
from engine.request import GenerationRequest
from service.engine_messages import Submit


def submit(request_id="r", prompt=(65, 66, 67), n=1, tenant="", stop=(), **params):
    request = GenerationRequest(
        request_id=request_id, prompt=tuple(prompt), params=SamplingParams(**params), n=n, tenant=tenant
    )
    return Submit(request=request, stop_strings=tuple(stop))


async def collect(client, command):
    async with client.submit(command) as stream:
        return [event async for events in stream for event in events]


async def until(condition, what):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"waited in vain until {what}")


async def test_events_of_every_sample_arrive_in_order_and_end_with_a_finish(start_engine):
    client = await start_engine()
    events = await collect(client, submit(n=2))
    for index in range(2):
        own = [event for event in events if event.sample_index == index]
        assert [token for event in own for token in event.tokens] == [65, 66, 67, 2]
        assert [event.finish is not None for event in own] == [False, False, False, True]


async def test_files_and_tokens_come_before_the_engine(start_engine, trie, model_files):
    client = await start_engine()
    assert await client.files() == model_files
    assert (await client.tokens()).vocabulary.fingerprint == trie.vocabulary.fingerprint


async def test_requests_run_side_by_side(start_engine):
    client = await start_engine(step_s=0.001)
    prompts = [(60 + i, 70 + i) for i in range(8)]
    results = await asyncio.gather(*(collect(client, submit(f"r{i}", prompt)) for i, prompt in enumerate(prompts)))
    assert [tuple(e.tokens[0] for e in events[:2]) for events in results] == prompts


async def test_events_that_wait_come_together(start_engine):
    client = await start_engine()
    async with client.submit(submit(prompt=range(60, 100))) as stream:
        await until(lambda: stream.is_finished, "the request finished unread")
        assert len(await anext(stream)) == 41
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_leaving_aborts_in_the_engine(start_engine):
    client = await start_engine(step_s=0.001)
    async with client.submit(submit(ignore_eos=True, max_tokens=100_000)) as stream:
        await anext(stream)
        assert client.stats.blocks.used == 1
    await until(lambda: client.stats.blocks.used == 0, "the abort freed the request")


async def test_cancelling_before_admission_aborts_too(start_engine):
    client = await start_engine(step_s=0.2)
    async with client.submit(submit("first", ignore_eos=True, max_tokens=1000)) as stream:
        await anext(stream)
        task = asyncio.create_task(collect(client, submit("second", ignore_eos=True, max_tokens=1000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: client.stats.blocks.used == 0, "both requests were freed")


async def test_a_refusal_reaches_its_own_request_only(start_engine):
    client = await start_engine(max_live=1, step_s=0.005)
    async with client.submit(submit("first", ignore_eos=True, max_tokens=1000)) as stream:
        with pytest.raises(CapacityError, match="try again") as refusal:
            await collect(client, submit("second"))
        assert refusal.value.retry_after_s == 2.5
        assert await anext(stream)


async def test_an_unexpected_error_in_submit_fails_alone_and_tells_nothing(start_engine, fake):
    client = await start_engine()
    with pytest.raises(EspalierError, match="the server's log has the cause") as error:
        await collect(client, submit("bad", tenant=fake.REFUSE))
    assert "secret" not in str(error.value)
    assert len(await collect(client, submit("good"))) == 4


async def test_a_stop_string_that_straddles_tokens_ends_the_sample_in_the_engine(start_engine, trie):
    ids = [trie.vocabulary.tokens.index(bytes([byte])) for byte in b"xaby"]
    client = await start_engine()
    events = await collect(client, submit(prompt=ids, stop=["ab"]))
    assert [event.tokens[0] for event in events] == ids[:3]
    assert events[-1].finish.reason is FinishReason.STOP_STRING


async def test_a_grammar_that_cannot_be_unpacked_fails_its_own_requests_only(start_engine):
    client = await start_engine()
    client.define_grammar("key", b"no pickle")
    with pytest.raises(EspalierError, match="could not be loaded"):
        await collect(client, Submit(request=submit().request, grammar_key="key"))
    assert len(await collect(client, submit("good"))) == 4


@pytest.mark.parametrize("fault", ["CRASH", "RAISE"])
async def test_a_dead_engine_fails_what_runs_and_what_comes(start_engine, fake, fault):
    client = await start_engine(step_s=0.01)
    other = asyncio.create_task(collect(client, submit("other", ignore_eos=True, max_tokens=10_000)))
    await until(lambda: client.stats and client.stats.running, "the other request runs")
    with pytest.raises(UnavailableError, match="engine is dead"):
        await collect(client, submit("bad", tenant=getattr(fake, fault)))
    with pytest.raises(UnavailableError):
        await other
    assert "exit code" in await client.failure()
    with pytest.raises(UnavailableError):
        await collect(client, submit("later"))


@pytest.mark.parametrize("fault", ["HANG", "STALL"])
async def test_an_engine_without_progress_is_given_up(start_engine, fake, fault):
    client = await start_engine(stall_s=0.4)
    with pytest.raises(UnavailableError, match="no progress"):
        await collect(client, submit("bad", tenant=getattr(fake, fault)))
    assert "no progress" in await client.failure()
    await until(lambda: not psutil.pid_exists(client.pid), "the process was killed")


async def test_a_stopped_engine_is_noticed_without_any_request(start_engine):
    client = await start_engine(stall_s=0.4)
    os.kill(client.pid, signal.SIGSTOP)
    assert "no progress" in await client.failure()


async def test_an_idle_engine_and_one_with_slow_steps_live_on(start_engine):
    client = await start_engine(stall_s=2.0, step_s=0.25)
    await asyncio.sleep(2.5)
    assert len(await collect(client, submit(prompt=range(60, 69)))) == 10


async def test_the_engine_ignores_signals_of_the_group(start_engine):
    client = await start_engine()
    os.kill(client.pid, signal.SIGINT)
    os.kill(client.pid, signal.SIGTERM)
    assert len(await collect(client, submit())) == 4


@pytest.mark.parametrize(
    ("error", "message"),
    [(ModelLoadError("no such file; fetch it"), "no such file; fetch it"), (ValueError("odd"), "ValueError: odd")],
)
async def test_an_engine_that_cannot_be_built_says_why(start_engine, fake, error, message):
    with pytest.raises(ModelLoadError, match=message):
        await start_engine(build=functools.partial(fake.broken_build, error))


async def test_a_process_that_dies_while_building_is_noticed(start_engine, fake):
    with pytest.raises(ModelLoadError, match="exit code 7"):
        await start_engine(build=fake.deadly_build)


async def test_cutting_off_fails_what_runs_and_frees_it(start_engine):
    client = await start_engine(step_s=0.005)
    task = asyncio.create_task(collect(client, submit(ignore_eos=True, max_tokens=100_000)))
    await until(lambda: client.stats and client.stats.running, "the request runs")
    client.cut_off(UnavailableError("drained"))
    with pytest.raises(UnavailableError, match="drained"):
        await task
    await until(lambda: client.stats.blocks.used == 0, "the request was freed")


def test_the_engine_dies_with_its_parent_even_in_the_middle_of_a_step(tmp_path, trie):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, functools, logging, pickle, sys
        from pathlib import Path
        from decoding.params import SamplingParams
        from engine.request import GenerationRequest
        from service.engine_client import EngineClient
        from service.engine_messages import Submit
        from service.engine_process import EngineSetup
        from tests.service import fake_engine

        async def main():
            trie = pickle.loads(Path(sys.argv[1]).read_bytes())
            setup = EngineSetup(
                find=functools.partial(fake_engine.same, None),
                load_tokens=functools.partial(fake_engine.same, trie),
                build=fake_engine.build,
                configure_logging=logging.basicConfig,
            )
            client = await EngineClient.start(setup, stall_s=60)
            await client.ready()
            request = GenerationRequest(request_id="r", prompt=(5,), params=SamplingParams(), tenant="hang")
            async with client.submit(Submit(request=request)):
                print(client.pid, flush=True)
                await asyncio.sleep(1000)

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )
    (tmp_path / "trie").write_bytes(pickle.dumps(trie))
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "trie")], stdout=subprocess.PIPE, text=True, env=environment
    )
    engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert engine.wait(timeout=20) in (0, None)
