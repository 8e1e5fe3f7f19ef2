"""Who is right about which schemas, and how long it takes: our grammar engine beside llguidance and others.

    python -m tests.bench.grammar [--quick] [--json FILE] [--check] [--failures FILE]
        [--parts maskbench,micro,suite,memory,sampling] [--vocabularies smollm2,tekken]
        [--engines espalier,llguidance,xgrammar,outlines-core] [--every N] [--peers-every N] [--limit-s S]

Every engine works in a process of its own with one thread, and they take turns schema by schema. A compilation past the
limit is killed and counted. xgrammar and outlines-core get every 15th schema, since they take seconds for one.

maskbench: 2,297 real schemas. micro: 83 checks of keywords. suite: JSON-Schema-Test-Suite, `optional/` beside it;
outside of it formats are notes, as the drafts have it. memory: 500 schemas kept with their masks. sampling: what a mask
and a draw cost, from `tests.bench.sampling`. README.md one folder up says what each column means.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from tests.bench import sampling
from tests.bench.grammar import engines, report, tasks, vocabularies
from tests.bench.grammar.contest import Contest
from tests.bench.grammar.failures import Failure, failures, markdown
from tests.bench.grammar.process import EngineProcess
from tests.bench.grammar.records import Held, Record
from tests.bench.grammar.tasks import Task
from tests.bench.harness import Report, finish, options

PARTS = ("maskbench", "micro", "suite", "memory", "sampling")
ENGINES = ("espalier", "llguidance", "xgrammar", "outlines-core")
SLOW = ("xgrammar", "outlines-core")
QUICK_EVERY, HELD, QUICK_HELD = 15, 500, 40


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    arguments = parsed(argv)
    os.environ.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1")
    for engine in arguments.engines:
        engines.check_installed(engine)
    files = [vocabularies.locate(name) for name in arguments.vocabularies]
    with ExitStack() as stack:
        contests = [stack.enter_context(Contest(file, limit_s=arguments.limit_s)) for file in files]
        bench = Bench(arguments, contests)
        reports = [found for part in arguments.parts for found in getattr(bench, part)()]
    if arguments.failures:
        command = f"python -m tests.bench.grammar {' '.join(argv if argv is not None else sys.argv[1:])}"
        arguments.failures.write_text(markdown(command, bench.failures), encoding="utf-8")
    settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "failures")}
    return finish(reports, arguments, settings)


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The options; `--quick` changes what is measured where nothing else is asked for."""

    def names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            given = text.split(",")
            if strange := set(given) - set(allowed):
                raise argparse.ArgumentTypeError(f"no {', '.join(sorted(strange))}; choose from {', '.join(allowed)}")
            return given

        return read

    parser = options(__doc__)
    parser.add_argument("--failures", type=Path, metavar="FILE", help="write the list of our failures as Markdown")
    parser.add_argument("--parts", type=names(PARTS), default=list(PARTS), help="what to measure")
    parser.add_argument("--vocabularies", type=names(vocabularies.NAMES), help="default smollm2,tekken; quick: smollm2")
    parser.add_argument("--engines", type=names(ENGINES), help=f"default {','.join(ENGINES)}; quick: the first two")
    parser.add_argument("--every", type=int, help="take every N-th schema of maskbench (default 1; quick: 15)")
    parser.add_argument("--peers-every", type=int, default=15, help="of these, what xgrammar and outlines-core get")
    parser.add_argument("--limit-s", type=float, default=30.0, help="seconds to compile one schema")
    arguments = parser.parse_args(argv)
    is_quick = arguments.quick
    arguments.vocabularies = arguments.vocabularies or (["smollm2"] if is_quick else ["smollm2", "tekken"])
    arguments.engines = arguments.engines or list(ENGINES[:2] if is_quick else ENGINES)
    arguments.every = arguments.every or (QUICK_EVERY if is_quick else 1)
    if report.OURS not in arguments.engines:
        parser.error(f"--engines has to name {report.OURS}, which the targets speak of")
    return arguments


class Bench:
    """The parts; `failures` fills as they run."""

    def __init__(self, arguments: argparse.Namespace, contests: Sequence[Contest]) -> None:
        self._arguments = arguments
        self._engines: list[str] = arguments.engines
        self._fast = [engine for engine in self._engines if engine not in SLOW]
        self._contests = contests
        self.failures: dict[str, list[Failure]] = {}

    def maskbench(self) -> list[Report]:
        """Real schemas: verdicts, times to the first mask, times per token; all engines on some of them."""
        reports: list[Report] = []
        schemas = tasks.maskbench(self._arguments.every)
        some = schemas[:: self._arguments.peers_every]
        for contest in self._contests:
            title = f"MaskBench, {contest.vocabulary.name}"
            records = self._run(title, contest, self._engines, schemas, some)
            all_of = {engine: records[engine] for engine in self._fast}
            table = report.verdicts(title, all_of)
            table.targets = report.maskbench_targets(all_of)
            reports += [table, report.compile_times(title, all_of), report.step_times(title, all_of)]
            reports.append(report.slowest(title, records[report.OURS]))
            if len(self._fast) < len(self._engines):
                names = {task.name for task in some}
                part = {engine: [item for item in records[engine] if item.name in names] for engine in self._engines}
                beside = f"{title}, every {self._arguments.peers_every}th"
                tables = (report.verdicts, report.compile_times, report.step_times)
                for found in (make(beside, part) for make in tables):
                    found.targets = []  # those of the whole file count
                    reports.append(found)
        return reports

    def micro(self) -> list[Report]:
        """Checks of single keywords."""
        reports = []
        for contest in self._contests:
            title = f"micro, {contest.vocabulary.name}"
            records = self._run(title, contest, self._engines, tasks.micro())
            table = report.verdicts(title, records)
            table.targets = report.micro_targets(records)
            reports.append(table)
        return reports

    def suite(self) -> list[Report]:
        """JSON-Schema-Test-Suite. Outside optional/ `format` is a note, inside it is asserted."""
        reports = []
        contest = self._contests[0]
        every = 8 if self._arguments.quick else 1
        counted: dict[str, list[Record]] = {}
        for draft in tasks.DRAFTS:
            groups = tasks.suite(draft, every)
            for group, ours in (("suite", "espalier-format-notes"), ("optional", report.OURS)):
                title = f"JSON-Schema-Test-Suite, draft {draft}, {'optional/' if group == 'optional' else 'required'}"
                part = [task for task in groups if task.group == group]
                named = [ours if engine == report.OURS else engine for engine in self._fast]
                records = self._run(title, contest, named, part)
                reports.append(report.verdicts(title, records))
                if group == "suite":
                    for engine, of_engine in records.items():
                        counted.setdefault(engine, []).extend(of_engine)
        both = report.verdicts("JSON-Schema-Test-Suite, both drafts, required", counted)
        both.targets = report.suite_targets(counted)
        return [*reports, both]

    def memory(self) -> list[Report]:
        """Schemas that are kept."""
        reports = []
        count = QUICK_HELD if self._arguments.quick else HELD
        schemas = tasks.maskbench()
        some = schemas[:: len(schemas) // count][:count]
        for contest in self._contests:
            held: dict[str, Held | None] = {}
            for engine in self._fast:
                process = EngineProcess(engine, contest.vocabulary, compile_limit_s=self._arguments.limit_s)
                held[engine] = process.hold(some)
                process.close()
            reports.append(report.memory(contest.vocabulary.name, held))
        return reports

    def sampling(self) -> list[Report]:
        """What a mask and a draw cost."""
        torch.set_num_threads(1)
        return [sampling.report(self._arguments)]

    def _run(
        self, title: str, contest: Contest, named: Sequence[str], part: Sequence[Task], some: Sequence[Task] = ()
    ) -> dict[str, list[Record]]:
        """All engines over the tasks, slow ones over ``some`` where these are given; then our failures' reasons."""
        records = contest.run(title, named, part, dict.fromkeys(SLOW, some) if some else {})
        ours = next(engine for engine in named if engine.startswith(report.OURS))

        def rerun(task: Task, *, in_any_order: bool = False) -> Record:
            return contest.run_one("espalier-any-order" if in_any_order else ours, task)

        self.failures[title] = list(failures(part, records[ours], rerun))
        return records


if __name__ == "__main__":
    sys.exit(main())
