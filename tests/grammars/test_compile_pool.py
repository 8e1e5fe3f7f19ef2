"""The pool against compile functions that crash, spin, leak and lie."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from decoding.errors import (
    CapacityError,
    ConstraintError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedConstraintError,
)
from grammars.compiling.messages import shared_objects, unpack
from grammars.compiling.pool import CompilePool, PoolOptions
from grammars.compiling.process import WorkerTimeoutError
from grammars.compiling.result import CompiledConstraint, CompilerCrashError
from grammars.constraint import ConstraintKind, ConstraintSpec, Notation
from grammars.limits import ConstraintLimits
from grammars.matching.trie import TokenTrie
from grammars.vocabulary import Vocabulary

TRIE = TokenTrie.of(Vocabulary(tokens=(b"", b"a", b"b"), special_ids=frozenset({0}), eos_ids=(0,), size=8))

COMPILERS = '''
import os, sys, time
from pathlib import Path
from decoding.errors import UnsupportedConstraintError
from grammars.compiling.result import Compilation

LEAK = []

class Grammar:
    """Carries what a test wants to know of the worker."""

    num_states = 1

    num_bytes = 1000

    def __init__(self, key, trie, facts, padding):
        self.key, self.trie, self.facts, self.padding = key, trie, facts, padding

def recurse():
    return recurse()

def by_command(spec, trie, *, limits, backend):
    """The text of the constraint is a command and its arguments."""
    command, *arguments = spec.text.split()
    with Path(os.environ["COMPILE_LOG"]).open("a") as log:
        log.write(spec.text + "\\n")
    match command:
        case "sleep": time.sleep(float(arguments[0]))
        case "spin":
            while True: pass
        case "exit": os._exit(int(arguments[0]))
        case "abort": os.abort()
        case "allocate": [bytearray(1 << 20) for _ in range(1 << 20)]
        case "leak": LEAK.append(bytearray(int(arguments[0])))
        case "refuse": raise UnsupportedConstraintError("constraint.regex", "no", "/a/b")
        case "bug": raise KeyError("oops")
        case "recurse": recurse()
        case "print": print("noise on standard output", flush=True)
    facts = {"pid": os.getpid(), "nice": os.nice(0), "modules": set(sys.modules) if command == "print" else ()}
    key = spec.key(fingerprint=trie.vocabulary.fingerprint, backend=backend)
    padding = int(arguments[0]) if command == "pad" else 0
    return Compilation(grammar=Grammar(key, trie, facts, b"x" * padding))

def broken(spec, trie, *, limits, backend):
    raise RuntimeError("never warms up")
'''

Log = Callable[[], list[str]]


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that the workers can import as well: they get this process's import path."""
    (tmp_path / "test_only_compilers.py").write_text(COMPILERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COMPILE_LOG", str(tmp_path / "log"))
    importlib.invalidate_caches()
    yield importlib.import_module("test_only_compilers")
    del sys.modules["test_only_compilers"]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """The commands that workers have begun, warm-up aside."""
    return lambda: [line for line in (tmp_path / "log").read_text().splitlines() if line != "."]


@pytest.fixture
def open_pool(compilers: ModuleType) -> Callable[..., AsyncIterator[CompilePool]]:
    @asynccontextmanager
    async def opened(limits: ConstraintLimits | None = None, **options: object) -> AsyncIterator[CompilePool]:
        settings = PoolOptions(**{"workers": 1, "limits": limits or ConstraintLimits(), **options})
        async with CompilePool(TRIE, settings, compile_function=compilers.by_command) as pool:
            yield pool

    return opened


def command(text: str) -> ConstraintSpec:
    return ConstraintSpec(kind=ConstraintKind.REGEX, text=text)


def loaded(compiled: CompiledConstraint) -> Any:
    return unpack(compiled.packed, shared_objects(TRIE))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes set no events
        await asyncio.sleep(0.01)


def children() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if "grammars.compiling.worker" in process.cmdline()]


@pytest.mark.parametrize(
    ("field", "value"),
    [("backend", "other"), ("workers", 0), ("max_waiting", -1), ("cache_bytes", 0), ("niceness", -1)],
)
def test_options_that_make_no_pool_are_refused(field: str, value: object) -> None:
    with pytest.raises(
        InvalidRequestError, match=f"{field}: is .*(use one of espalier, llguidance, outlines-core|at least)"
    ):
        PoolOptions(**{field: value})


async def test_a_result_names_shared_objects_and_is_cached(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        spec = command("nothing")
        assert pool.lookup(pool.key(spec)) is None
        compiled = await pool.compile(spec)
        assert loaded(compiled).trie is TRIE
        assert compiled.key == loaded(compiled).key == pool.key(spec)
        assert (compiled.states, compiled.size_bytes, compiled.unenforced) == (1, 1000, ())
        assert compiled.compile_ms > 0
        assert await pool.compile(spec) is compiled
        assert pool.lookup(compiled.key) is compiled
        assert log() == ["nothing"]


async def test_workers_are_lean_nice_and_deaf_to_what_is_printed(open_pool) -> None:
    async with open_pool(niceness=7) as pool:
        facts = loaded(await pool.compile(command("print"))).facts
        assert facts["nice"] == os.nice(0) + 7
        assert not facts["modules"].intersection({"torch", "grpc", "transformers", "asyncio"})


async def test_equal_constraints_at_once_are_compiled_once(open_pool, log: Log) -> None:
    async with open_pool(workers=2) as pool:
        results = await asyncio.gather(*(pool.compile(command("sleep 0.2")) for _ in range(5)))
        assert all(result is results[0] for result in results)
        assert log() == ["sleep 0.2"]


async def test_callers_who_share_a_compilation_get_errors_of_their_own(open_pool) -> None:
    """They are translated by different calls, which write the path of their own field into them."""
    async with open_pool() as pool:
        spec = command("refuse")
        first, second = await asyncio.gather(pool.compile(spec), pool.compile(spec), return_exceptions=True)
    assert isinstance(first, ConstraintError)
    assert first is not second
    assert str(first) == str(second)


async def test_cancelling_one_caller_leaves_the_others_compilation_alone(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        first = asyncio.create_task(pool.compile(command("sleep 0.5")))
        await until(lambda: log() == ["sleep 0.5"])
        second = asyncio.create_task(pool.compile(command("sleep 0.5")))
        await asyncio.sleep(0.1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).key == pool.key(command("sleep 0.5"))
        assert log() == ["sleep 0.5"]


async def test_what_nobody_waits_for_is_dropped_in_the_queue_and_finished_in_a_worker(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        running = asyncio.create_task(pool.compile(command("sleep 0.4")))
        await until(lambda: log() == ["sleep 0.4"])
        queued = asyncio.create_task(pool.compile(command("queued")))
        await asyncio.sleep(0.1)
        for task in (queued, running):
            task.cancel()
        await asyncio.gather(queued, running, return_exceptions=True)
        await pool.compile(command("last"))
        assert log() == ["sleep 0.4", "last"]
        assert pool.lookup(pool.key(command("sleep 0.4"))) is not None


async def test_a_dropped_constraint_can_be_asked_for_again(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        running = asyncio.create_task(pool.compile(command("sleep 0.3")))
        await until(lambda: log() == ["sleep 0.3"])
        dropped = asyncio.create_task(pool.compile(command("again")))
        await asyncio.sleep(0.1)
        dropped.cancel()
        again = asyncio.create_task(pool.compile(command("again")))
        assert (await again).key == pool.key(command("again"))
        await running


async def test_a_runaway_is_killed_at_the_wall_limit_and_not_remembered(open_pool, log: Log) -> None:
    async with open_pool(ConstraintLimits(wall_s=0.5)) as pool:
        (worker,) = children()
        for _ in range(2):
            with pytest.raises(WorkerTimeoutError, match=r"constraint\.regex: did not compile within 0\.5 s"):
                await pool.compile(command("spin"))
        await pool.compile(command("nothing"))
        assert not worker.is_running()
        assert log() == ["spin", "spin", "nothing"]


async def test_the_real_compiler_in_a_worker() -> None:
    tokens = (b"", *(bytes([byte]) for byte in range(256)))
    trie = TokenTrie.of(Vocabulary(tokens=tokens, special_ids=frozenset({0}), eos_ids=(0,), size=300))
    async with CompilePool(trie, PoolOptions(workers=1)) as pool:
        compiled = await pool.compile(ConstraintSpec(kind=ConstraintKind.CHOICES, values=("yes", "no")))
        grammar = unpack(compiled.packed, shared_objects(trie))
        assert grammar.matcher().mask().legal.tolist() == [ord("n") + 1, ord("y") + 1]
        assert compiled.states > 1
        assert compiled.size_bytes > 0
        wrong = ConstraintSpec(kind=ConstraintKind.JSON_SCHEMA, text='{"type": "strong"}')
        with pytest.raises(ConstraintError, match="/type"):
            await pool.compile(wrong)


async def test_an_exploding_automaton_of_outlines_core_is_killed() -> None:
    tokens = (b"", *(bytes([byte]) for byte in range(256)))
    trie = TokenTrie.of(Vocabulary(tokens=tokens, special_ids=frozenset({0}), eos_ids=(0,), size=257))
    options = PoolOptions(backend="outlines-core", workers=1, limits=ConstraintLimits(wall_s=1))
    async with CompilePool(trie, options) as pool:
        runaway = r'"([^"\\\x00-\x1F\x7F-\x9F]|\\["\\/bfnrt]){0,40}"'
        with pytest.raises(WorkerTimeoutError):
            await pool.compile(command(runaway))
        await pool.compile(command("[a-z]{3}"))


async def test_a_template_of_lark_that_never_ends_is_stopped() -> None:
    spec = ConstraintSpec(
        kind=ConstraintKind.GRAMMAR, text="start: _t{A}\n_t{x}: _t{_t{x}}\nA: /a/", notation=Notation.LARK
    )
    async with CompilePool(TRIE, PoolOptions(workers=1, limits=ConstraintLimits(cpu_s=2))) as pool:
        with pytest.raises(ConstraintError, match=r"processor time|MiB"):
            await pool.compile(spec)
        compiled = await pool.compile(ConstraintSpec(kind=ConstraintKind.GRAMMAR, text='root ::= "a"'))
    assert unpack(compiled.packed, shared_objects(TRIE)).matcher().forced(9) == b"a"


async def test_other_constraints_go_on_beside_a_runaway(open_pool, log: Log) -> None:
    async with open_pool(ConstraintLimits(wall_s=5), workers=2) as pool:
        runaway = asyncio.create_task(pool.compile(command("spin")))
        await until(lambda: log() == ["spin"])
        for number in range(5):
            await pool.compile(command(f"nothing {number}"))
        assert not runaway.done()
        runaway.cancel()


async def test_slow_constraints_leave_a_worker_to_quick_ones(open_pool, log: Log) -> None:
    async with open_pool(workers=2, quick_s=0.1) as pool:
        slow = [asyncio.create_task(pool.compile(command(text))) for text in ("spin 1", "spin 2")]
        await until(lambda: len(log()) == 2)
        for text in ("one", "two"):
            await pool.compile(command(text))
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()


async def test_a_slow_constraint_that_gave_way_is_compiled_in_its_turn(open_pool, log: Log) -> None:
    async with open_pool(workers=2, quick_s=0.1) as pool:
        slow = [asyncio.create_task(pool.compile(command(text))) for text in ("sleep 2.01", "sleep 2.02")]
        await until(lambda: len(log()) == 2)
        await pool.compile(command("quick"))
        await asyncio.gather(*slow)
        assert len(log()) == 4, "one of them began anew"
        assert len(children()) == 2


async def test_where_nobody_waits_slow_constraints_have_all_workers(open_pool, log: Log) -> None:
    async with open_pool(workers=2, quick_s=0.1) as pool:
        await asyncio.gather(*(pool.compile(command(text)) for text in ("sleep 0.61", "sleep 0.62")))
        assert len(log()) == 2


async def test_a_runaway_is_killed_at_the_processor_limit_and_remembered(open_pool, log: Log) -> None:
    async with open_pool(ConstraintLimits(cpu_s=1)) as pool:
        for _ in range(2):
            with pytest.raises(ConstraintError, match="more than 1 s of processor time"):
                await pool.compile(command("spin"))
        await pool.compile(command("nothing"))
        assert log() == ["spin", "nothing"]


@pytest.mark.parametrize("text", ["allocate", "abort"])
async def test_a_hungry_compilation_fails_alone(open_pool, text: str) -> None:
    async with open_pool(ConstraintLimits(memory_bytes=64 << 20)) as pool:
        with pytest.raises(ConstraintError, match="needs more than 64 MiB"):
            await pool.compile(command(text))
        await pool.compile(command("nothing"))


async def test_a_worker_that_kept_memory_makes_way_for_a_fresh_one(open_pool) -> None:
    async with open_pool(ConstraintLimits(memory_bytes=64 << 20)) as pool:
        pids = [
            loaded(await pool.compile(command(text))).facts["pid"]
            for text in ("nothing", "leak 1000", "leak 50000000", "leak 50000001", "nothing 2")
        ]
        assert pids[0] == pids[1] == pids[2]
        assert len(set(pids)) == 3


async def test_a_crash_fails_only_its_own_compilation_and_is_not_remembered(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        for _ in range(2):
            with pytest.raises(CompilerCrashError, match="exit status 3"):
                await pool.compile(command("exit 3"))
        await pool.compile(command("nothing"))
        assert log() == ["exit 3", "exit 3", "nothing"]


async def test_a_worker_that_dies_while_idle_is_replaced(open_pool) -> None:
    async with open_pool() as pool:
        (worker,) = children()
        worker.kill()
        (handle,) = pool._workers
        await until(lambda: not handle.is_alive)
        assert loaded(await pool.compile(command("nothing"))).facts["pid"] != worker.pid


async def test_a_bug_in_the_compiler_is_reported_as_one_and_costs_no_worker(open_pool) -> None:
    async with open_pool() as pool:
        (worker,) = children()
        with pytest.raises(CompilerCrashError, match="KeyError in the compiler"):
            await pool.compile(command("bug"))
        with pytest.raises(ConstraintError, match="nests too deeply"):
            await pool.compile(command("recurse"))
        assert loaded(await pool.compile(command("nothing"))).facts["pid"] == worker.pid


async def test_refusals_are_remembered_whole(open_pool, log: Log) -> None:
    async with open_pool() as pool:
        for _ in range(3):
            with pytest.raises(UnsupportedConstraintError) as caught:
                await pool.compile(command("refuse"))
            assert (caught.value.field, caught.value.pointer) == ("constraint.regex", "/a/b")
            assert str(caught.value) == "constraint.regex: no (at /a/b)"
        assert log() == ["refuse"]


async def test_what_exceeds_the_limits_reaches_no_worker(open_pool, log: Log) -> None:
    async with open_pool(ConstraintLimits(pattern_bytes=8)) as pool:
        with pytest.raises(ConstraintError, match="bytes"):
            await pool.compile(command("nothing at all"))
        assert log() == []


async def test_a_full_queue_refuses_with_a_time_to_retry(open_pool, log: Log) -> None:
    async with open_pool(max_waiting=2) as pool:
        running = asyncio.create_task(pool.compile(command("sleep 0.5")))
        await until(lambda: log() == ["sleep 0.5"])
        waiting = [asyncio.create_task(pool.compile(command(f"nothing {number}"))) for number in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(CapacityError) as caught:
            await pool.compile(command("nothing 2"))
        assert caught.value.retry_after_s >= 1
        shared = asyncio.create_task(pool.compile(command("nothing 1")))  # needs no place of its own
        await asyncio.gather(running, *waiting, shared)
        await pool.compile(command("nothing 2"))


async def test_the_cache_is_bounded(open_pool, log: Log) -> None:
    async with open_pool(cache_entries=2, cache_bytes=100_000) as pool:
        first = await pool.compile(command("nothing 1"))
        await pool.compile(command("nothing 2"))
        assert pool.lookup(first.key) is first
        third = await pool.compile(command("pad 5000"))
        assert pool.lookup(pool.key(command("nothing 2"))) is None
        fourth = await pool.compile(command("pad 98000"))
        assert [pool.lookup(compiled.key) for compiled in (first, third, fourth)] == [None, None, fourth]
        fifth = await pool.compile(command("pad 100000"))
        assert pool.lookup(fifth.key) is None


async def test_closing_leaves_no_process_and_tells_the_waiting(open_pool, log: Log) -> None:
    async with open_pool(workers=2, max_waiting=8) as pool:
        workers = children()
        assert len(workers) == 2
        tasks = [asyncio.create_task(pool.compile(command(f"spin {number}"))) for number in range(4)]
        await until(lambda: len(log()) == 2)
    assert not any(worker.is_running() for worker in workers)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, UnavailableError)
    with pytest.raises(UnavailableError, match="shutting down"):
        await pool.compile(command("nothing"))


async def test_a_worker_that_cannot_warm_up_fails_the_start(compilers: ModuleType) -> None:
    with pytest.raises(UnavailableError, match="did not start"):
        async with CompilePool(TRIE, PoolOptions(workers=2), compile_function=compilers.broken):
            pytest.fail("the pool opened")
    assert children() == []


async def test_a_restart_that_the_machine_refuses_is_tried_again(open_pool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_pool() as pool:
        start = asyncio.create_subprocess_exec
        attempts = []

        async def refuse_once(*arguments: object, **options: object) -> object:
            attempts.append(arguments)
            if len(attempts) == 1:
                raise BlockingIOError("no more processes")
            return await start(*arguments, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse_once)
        with pytest.raises(CompilerCrashError):
            await pool.compile(command("exit 1"))
        await pool.compile(command("nothing"))
        assert len(attempts) == 2


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_workers_die_with_a_parent_that_is_killed(compilers: ModuleType, tmp_path: Path, busy: bool) -> None:
    program = """
        import asyncio, os, sys
        import psutil
        from test_only_compilers import by_command
        from grammars.compiling.pool import CompilePool, PoolOptions
        from grammars.constraint import ConstraintKind, ConstraintSpec, Notation
        from grammars.matching.trie import TokenTrie
        from grammars.vocabulary import Vocabulary

        async def main():
            vocabulary = Vocabulary(tokens=(b"", b"a"), special_ids=frozenset({0}), eos_ids=(0,), size=8)
            trie = TokenTrie.of(vocabulary)
            async with CompilePool(trie, PoolOptions(workers=1), compile_function=by_command) as pool:
                print(psutil.Process().children()[0].pid, flush=True)
                if sys.argv[1] == "busy":
                    await pool.compile(ConstraintSpec(kind=ConstraintKind.REGEX, text="spin"))
                await asyncio.sleep(600)

        asyncio.run(main())
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), "busy" if busy else "idle"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    while busy and "spin" not in (tmp_path / "log").read_text():
        pass
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    worker.wait(timeout=60)
