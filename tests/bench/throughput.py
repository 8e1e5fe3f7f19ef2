"""Tokens per second, time to first token and gaps between tokens of the engine, beside transformers' own `generate`.

    python -m tests.bench.throughput [--quick] [--json FILE] [--check] [--dtype bfloat16|float32]

Both run the default model's weights in one process, in one dtype, with the same threads and prompts, greedily, in
interleaved rounds. Targets (`--check`): one stream at least as fast as transformers; 16 streams at least 4 times one
stream; a shared 500-token prefix cuts the time to first token at least 5 times; while a 1,500-token prompt is
prefilled, the p99 gap between the tokens of running streams stays under twice one full step of the default budget.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM

from decoding.params import SamplingParams
from engine.build import build_engine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.loading.files import ModelFiles
from engine.loading.resolve import resolve_model
from engine.request import GenerationRequest
from tests.bench.harness import Case, Report, Sample, Target, finish, interleave, options

STREAMS = (1, 4, 16)
PROMPT, OUTPUT = 64, 64
PREFIX, LONG_PROMPT, GAP_STREAMS = 500, 1500, 4

_ids = itertools.count()
_seeds = itertools.count()


def fresh_prompt(length: int) -> tuple[int, ...]:
    """Token ids that no earlier prompt shares."""
    generator = torch.Generator().manual_seed(next(_seeds))
    return tuple(torch.randint(100, 40_000, (length,), generator=generator).tolist())


def submit(engine: Engine, prompt: tuple[int, ...], max_tokens: int) -> str:
    """Queue a greedy request of exactly ``max_tokens`` tokens."""
    request_id = str(next(_ids))
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    engine.submit(GenerationRequest(request_id=request_id, prompt=prompt, params=params))
    return request_id


def ours(engine: Engine, streams: int) -> float:
    """Tokens per second of equal requests that arrive together, prompt processing included."""
    for _ in range(streams):
        submit(engine, fresh_prompt(PROMPT), OUTPUT)
    start = time.perf_counter()
    tokens = 0
    while engine.has_work:
        tokens += sum(len(event.tokens) for event in engine.step())
    return tokens / (time.perf_counter() - start)


def theirs(model: torch.nn.Module, streams: int) -> float:
    """The same through `generate` with its own cache, as one batch."""
    prompts = torch.tensor([fresh_prompt(PROMPT) for _ in range(streams)])
    start = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(  # type: ignore[operator]
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            max_new_tokens=OUTPUT,
            min_new_tokens=OUTPUT,
        )
    return (output.shape[1] - PROMPT) * streams / (time.perf_counter() - start)


def first_token_ms(engine: Engine, prompt: tuple[int, ...]) -> float:
    """Milliseconds from submission to the first token, on an engine that does nothing else."""
    start = time.perf_counter()
    submit(engine, prompt, 1)
    while engine.has_work:
        engine.step()
    return (time.perf_counter() - start) * 1e3


@dataclass(slots=True)
class SharedPrefix:
    """Time to first token with a fresh prefix and with the same one again."""

    engine: Engine
    prefix: tuple[int, ...] = ()

    def miss(self) -> float:
        """The prefix is new."""
        self.prefix = fresh_prompt(PREFIX)
        return first_token_ms(self.engine, self.prefix + fresh_prompt(8))

    def hit(self) -> float:
        """The prefix was computed a moment ago, the rest is new."""
        return first_token_ms(self.engine, self.prefix + fresh_prompt(8))


@dataclass(slots=True)
class LongPrompt:
    """Gaps between tokens of running streams while a long prompt is prefilled, round by round."""

    engine: Engine
    rounds: list[list[float]] = field(default_factory=list)

    def run(self) -> float:
        """The largest gap in milliseconds; every gap is kept."""
        engine = self.engine
        running = {submit(engine, fresh_prompt(16), 64) for _ in range(GAP_STREAMS)}
        engine.step()
        long = submit(engine, fresh_prompt(LONG_PROMPT), 1)
        gaps: list[float] = []
        last = time.perf_counter()
        is_prefilling = True
        while is_prefilling:
            events = engine.step()
            now = time.perf_counter()
            gaps += [(now - last) * 1e3 for event in events if event.request_id in running]
            last = now
            is_prefilling = all(event.request_id != long for event in events)
        for request_id in running:
            engine.abort(request_id)
        self.rounds.append(gaps)
        return max(gaps)

    def p99(self) -> float:
        """99th percentile of all gaps but those of the warm-up round, nearest rank."""
        ordered = sorted(gap for gaps in self.rounds[1:] for gap in gaps)
        return ordered[math.ceil(0.99 * len(ordered)) - 1]


def full_step_ms(engine: Engine) -> float:
    """Milliseconds of one step that computes a prompt of exactly the default budget."""
    return first_token_ms(engine, fresh_prompt(engine.card.max_batch_tokens))


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    parser = options(__doc__)
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    arguments = parser.parse_args(argv)
    rounds = 3 if arguments.quick else 7
    files = resolve_model(None)
    engine = build(files, arguments)
    unchunked = build(files, arguments, chunked_prefill=False)
    dtype = getattr(torch, engine.card.dtype)
    model = AutoModelForCausalLM.from_pretrained(files.directory, dtype=dtype).eval()

    reports = [
        streams_report(engine, model, rounds),
        prefix_report(engine, rounds),
        gap_report(engine, unchunked, rounds),
    ]
    settings = {"dtype": engine.card.dtype, "rounds": rounds, "prompt": PROMPT, "output": OUTPUT}
    return finish(reports, arguments, settings)


def build(files: ModelFiles, arguments: argparse.Namespace, **config: bool) -> Engine:
    """An engine with default settings but for the dtype, what is compared, and a number of threads that both share."""
    return build_engine(EngineConfig(dtype=arguments.dtype, threads=torch.get_num_threads(), **config), files)


def streams_report(engine: Engine, model: torch.nn.Module, rounds: int) -> Report:
    """Tokens per second by number of streams."""
    cases = [Case(name=f"ours {count}", run=lambda count=count: ours(engine, count)) for count in STREAMS]
    cases += [Case(name=f"theirs {count}", run=lambda count=count: theirs(model, count)) for count in STREAMS]
    samples = interleave(cases, rounds)
    report = Report(
        title="Tokens per second", columns=("streams", "espalier", "transformers", "ratio", "times one stream")
    )
    one = samples["ours 1"]
    for count in STREAMS:
        mine, other = samples[f"ours {count}"], samples[f"theirs {count}"]
        report.rows.append((count, mine, other, ratio(mine, other), mine.median / one.median))
    report.targets = [
        Target(name="one stream / transformers", value=ratio(one, samples["theirs 1"]).median, at_least=1.0),
        Target(name="16 streams / one stream", value=ratio(samples["ours 16"], one).median, at_least=4.0),
    ]
    return report


def prefix_report(engine: Engine, rounds: int) -> Report:
    """Time to first token of a prompt with a shared prefix."""
    shared = SharedPrefix(engine)
    samples = interleave([Case(name="miss", run=shared.miss), Case(name="hit", run=shared.hit)], rounds)
    gain = ratio(samples["miss"], samples["hit"])
    report = Report(
        title=f"Time to first token, ms, shared prefix of {PREFIX}", columns=("", "miss", "hit", "miss / hit")
    )
    report.rows.append(("espalier", samples["miss"], samples["hit"], gain))
    report.targets = [Target(name="TTFT miss / hit", value=gain.median, at_least=5.0)]
    return report


def gap_report(engine: Engine, unchunked: Engine, rounds: int) -> Report:
    """Gaps of running streams beside a long prompt, with and without chunks."""
    chunked, whole = LongPrompt(engine), LongPrompt(unchunked)
    cases = [
        Case(name="step", run=lambda: full_step_ms(engine)),
        Case(name="chunked", run=chunked.run),
        Case(name="whole", run=whole.run),
    ]
    samples = interleave(cases, rounds)
    title = f"Gaps of {GAP_STREAMS} streams beside a {LONG_PROMPT}-token prompt, ms"
    report = Report(title=title, columns=("", "p99", "largest", "full step"))
    report.rows.append(("chunked", chunked.p99(), samples["chunked"], samples["step"]))
    report.rows.append(("whole prompt", whole.p99(), samples["whole"], samples["step"]))
    value = chunked.p99() / samples["step"].median
    report.targets = [Target(name="p99 gap / full step", value=value, at_most=2.0)]
    return report


def ratio(numerator: Sample, denominator: Sample) -> Sample:
    """Round by round, so that both sides saw the same state of the machine."""
    return Sample.of([top / bottom for top, bottom in zip(numerator.rounds, denominator.rounds, strict=True)])


if __name__ == "__main__":
    sys.exit(main())
