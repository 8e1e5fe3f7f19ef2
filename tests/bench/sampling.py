"""Microseconds per row of mask and draw, at two vocabulary widths, for one row a step and for sixteen.

    python -m tests.bench.sampling [--quick] [--json FILE] [--check]

Logits are float32 on the CPU with normal noise of the spread of a small language model's; free-text masks allow 98 % of
the vocabulary, scattered. One thread. Targets (`--check`), one row, 49,152 tokens: at most 30 µs where 100 tokens are
legal, at most 60 µs for greedy free text under a mask.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from decoding.masks import MaskRow
from decoding.params import SamplingParams
from decoding.pipeline import LogitsPipeline
from decoding.rows import RowContext
from tests.bench.harness import Case, Report, Sample, Target, finish, interleave, options

WIDTHS = (49_152, 131_072)
BATCHES = (1, 16)
SPREAD = 4.0
EOS = 0

# name: (legal tokens: a count, a share of the vocabulary, or None without a mask; sampling parameters)
CASES: dict[str, tuple[int | float | None, dict[str, object]]] = {
    "20 legal, greedy": (20, {"temperature": 0.0}),
    "100 legal, greedy": (100, {"temperature": 0.0}),
    "20 legal, sampled": (20, {}),
    "100 legal, sampled": (100, {}),
    "100 legal, top-k 50, top-p 0.9": (100, {"top_k": 50, "top_p": 0.9}),
    "free text, greedy, no mask": (None, {"temperature": 0.0}),
    "free text, greedy": (0.98, {"temperature": 0.0}),
    "a tenth legal, greedy": (0.1, {"temperature": 0.0}),
    "free text, top-k 50, top-p 0.9": (0.98, {"top_k": 50, "top_p": 0.9}),
    "free text, top-p 0.9": (0.98, {"top_p": 0.9}),
    "free text, min-p 0.05": (0.98, {"min_p": 0.05}),
    "free text, full multinomial": (0.98, {}),
    "free text, greedy, penalties": (0.98, {"temperature": 0.0, "repetition_penalty": 1.1, "frequency_penalty": 0.1}),
    "free text, greedy, 5 logprobs": (0.98, {"temperature": 0.0, "logprobs": 5}),
}
AT_MOST_US = {"100 legal, greedy": 30.0, "100 legal, sampled": 30.0, "free text, greedy": 60.0}


def mask_of(legal: float | None, width: int, rng: np.random.Generator) -> MaskRow | None:
    """A mask that allows that many tokens, or that share of them."""
    if legal is None:
        return None
    count = legal if isinstance(legal, int) else int(legal * width)
    return MaskRow.from_ids(rng.choice(width, count, replace=False).tolist(), width)


def timed(pipeline: LogitsPipeline, steps: Sequence[torch.Tensor], rows: Sequence[RowContext], calls: int) -> float:
    """Microseconds per row over ``calls`` steps."""
    start = time.perf_counter()
    for call in range(calls):
        pipeline.draw(steps[call % len(steps)], rows)
    return (time.perf_counter() - start) / (calls * len(rows)) * 1e6


def cases_of(width: int, batch: int, calls: int) -> list[Case]:
    """Every case at one width and batch size, each with masks of its own."""
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((4, batch, width)) * SPREAD).astype(np.float32)
    steps = list(torch.from_numpy(logits))
    pipeline = LogitsPipeline(width, (EOS,))

    def runner(legal: float | None, params: dict[str, object]) -> Callable[[], float]:
        rows = [
            RowContext(
                params=SamplingParams(seed=index, **params),
                sample_index=index,
                prompt=tuple(range(1, 400)),
                output=list(range(400, 500)),
                mask=mask_of(legal, width, rng),
            )
            for index in range(batch)
        ]
        return lambda: timed(pipeline, steps, rows, calls)

    return [Case(name=name, run=runner(legal, params)) for name, (legal, params) in CASES.items()]


def report(arguments: argparse.Namespace) -> Report:
    """The table of every case and the targets."""
    rounds, calls = (5, 40) if arguments.quick else (25, 200)
    samples: dict[tuple[int, int], dict[str, Sample]] = {}
    for width in WIDTHS:
        for batch in BATCHES:
            samples[width, batch] = interleave(cases_of(width, batch, max(1, calls // batch)), rounds)
    columns = tuple(f"V={width:,} R={batch}" for width, batch in samples)
    found = Report(title="mask + draw, µs per row", columns=("case", *columns))
    found.rows += [(name, *(sample[name] for sample in samples.values())) for name in CASES]
    alone = samples[WIDTHS[0], 1]
    found.targets += [
        Target(name=f"{name}, µs", value=alone[name].median, at_most=us) for name, us in AT_MOST_US.items()
    ]
    return found


def main() -> int:
    """Run the benchmark."""
    arguments = options(__doc__).parse_args()
    torch.set_num_threads(1)
    settings = {"widths": WIDTHS, "batches": BATCHES, "spread": SPREAD, "cases": CASES}
    return finish([report(arguments)], arguments, settings)


if __name__ == "__main__":
    sys.exit(main())
