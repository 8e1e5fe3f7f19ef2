"""What each drafter is worth on the default model, beside plain decoding, in interleaved rounds.

    python -m tests.bench.speculation [--quick] [--json FILE] [--check] [--batches 1,4,16] [--drafters NAME,NAME]

Greedy. All drafters are in one engine, `model` as the target's own first layers; `auto` chooses among all of them.
Targets (`--check`): forced+ngram at least 1.8 times `none` on extraction at batch 1; `auto` at least 0.97 times `none`
and 0.95 times the best named drafter everywhere; masks and model-free drafting at most 8 % of the step.
"""

from __future__ import annotations

import argparse
import sys

import torch
from tokenizers import Tokenizer

from drafters.speculation import MODEL_FREE as LOADED
from engine.build import build_engine
from engine.config import EngineConfig
from engine.loading.resolve import resolve_model
from service.engine_build import load_tokens
from tests.bench.harness import Report, finish, options
from tests.bench.speculation.figures import AUTO, MODEL_FREE, NONE, Cell, cell, targets
from tests.bench.speculation.runs import STAGES, Bench, Reference, Run
from tests.bench.speculation.workloads import COUNT, Workload, workloads

DRAFTERS = (NONE, *MODEL_FREE, "model", AUTO)


def main() -> int:
    """Run the benchmark."""
    arguments = _arguments()
    bench = _bench(arguments)
    drafters = [NONE, *(name for name in arguments.drafters.split(",") if name != NONE)]
    reports, cells = [], {}
    for workload in workloads():
        for batch in map(int, arguments.batches.split(",")):
            found = _measure(bench, workload, batch, drafters, arguments)
            cells[workload.name, batch] = found
            report = _report(f"{workload.name}, batch {batch}", found)
            report.targets = targets({(workload.name, batch): found})
            reports.append(report)
            print(f"measured {report.title}", file=sys.stderr, flush=True)
    settings = {name: getattr(arguments, name) for name in ("rounds", "max_tokens", "batches", "self_layers", "dtype")}
    return finish(reports, arguments, settings)


def _measure(
    bench: Bench, workload: Workload, batch: int, drafters: list[str], arguments: argparse.Namespace
) -> dict[str, Cell]:
    """Rounds of turns, each with other prompts. The first does not count: `auto` learns in it."""
    runs: dict[str, list[Run]] = {name: [] for name in drafters}
    references: list[Reference] = []
    limit = arguments.max_tokens
    for number in range(1 + arguments.rounds):
        prompts = [(number * batch + index) % COUNT for index in range(batch)]
        if number == 0:
            for name in drafters if not arguments.quick else {AUTO} & set(drafters):
                bench.run(workload, prompts, name, max_tokens=limit)
            continue
        references.append(bench.reference(workload, prompts, max_tokens=limit))
        for name in drafters:
            runs[name].append(bench.run(workload, prompts, name, max_tokens=limit))
    return {name: cell(mine, runs[NONE], references) for name, mine in runs.items()}


def _report(title: str, cells: dict[str, Cell]) -> Report:
    stages = tuple(f"{stage} ms" for stage in STAGES)
    columns = ("drafter", "tok/fwd", "rows/fwd", *stages, "overhead", "tok/s", "speed-up", "differ", "widest gap")
    report = Report(title=title, columns=columns)
    for name, found in cells.items():
        report.rows.append(
            (
                name,
                found.tokens_per_forward,
                found.rows_per_forward,
                *(found.stage_ms[stage] for stage in STAGES),
                f"{found.overhead:.1%}",
                found.tokens_per_s,
                found.speed_up,
                found.difference.texts,
                found.difference.widest_gap,
            )
        )
    return report


def _bench(arguments: argparse.Namespace) -> Bench:
    files = resolve_model(None)
    trie = load_tokens(files)
    config = EngineConfig(
        drafters="+".join(LOADED),
        draft_model=f"self:{arguments.self_layers}",
        dtype=arguments.dtype,
        threads=torch.get_num_threads(),
        prefix_cache=False,
    )
    engine = build_engine(config, files, vocabulary=trie.vocabulary)
    return Bench(engine, Tokenizer.from_file(str(files.tokenizer)), trie)


def _arguments() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, help="rounds that count (default: 8, with --quick 1)")
    parser.add_argument("--max-tokens", type=int, help="tokens per answer (default: 96, with --quick 32)")
    parser.add_argument("--batches", help="requests at once (default: 1,4,16, with --quick 1)")
    parser.add_argument("--drafters", default=",".join(DRAFTERS), help="(default: %(default)s)")
    parser.add_argument("--self-layers", type=int, default=8, help="of the drafter `model` (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="as for the server (default: %(default)s)")
    arguments = parser.parse_args()
    whole = {"rounds": 8, "max_tokens": 96, "batches": "1,4,16"}
    quick = {"rounds": 1, "max_tokens": 32, "batches": "1"}
    for name, value in (quick if arguments.quick else whole).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
