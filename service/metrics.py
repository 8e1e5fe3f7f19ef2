"""Prometheus metrics under the names that dashboards for vLLM know, where it has them.

Gauges and counters of the engine are read from its last report when they are scraped; the histograms are fed by the
requests. Invariant: nothing here is global, so that two servers in one process keep their own numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from decoding.finish import FinishReason
from engine.request import TokenEvent
from engine.stats import EngineStats

_LABEL = "model_name"
_SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_LONG_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)


class ServerMetrics:
    """The registry of one server."""

    def __init__(self, model_name: str, engine_stats: Callable[[], EngineStats | None]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(model_name, engine_stats))
        labels = {_LABEL: model_name}

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            metric = Histogram(name, text, [_LABEL], buckets=buckets, registry=self.registry)
            child: Histogram = metric.labels(**labels)
            return child

        self.time_to_first_token = histogram(
            "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", _LONG_S
        )
        self.time_per_output_token = histogram(
            "vllm:time_per_output_token_seconds", "Mean time between the tokens of a sample after its first.", _SHORT_S
        )
        self.latency = histogram(
            "vllm:e2e_request_latency_seconds", "From a request's arrival to the end of its last sample.", _LONG_S
        )
        reasons = [_LABEL, "finished_reason"]
        self._finished = Counter("vllm:request_success", "Samples that ended.", reasons, registry=self.registry)
        self._labels = labels

    def count_finish(self, reason: FinishReason) -> None:
        """One sample ended."""
        self._finished.labels(**self._labels, finished_reason=reason.value).inc()


class RequestClock:
    """Times of one request, from its construction on."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._start = time.perf_counter()
        self._first: dict[int, float] = {}
        self.finished = 0
        self._is_cut = False
        self.completion_tokens = 0
        self.time_to_first_token: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self._start

    def see(self, event: TokenEvent) -> None:
        """Observe what one event tells of first tokens, gaps and ends."""
        now = self.elapsed
        if self.time_to_first_token is None:
            self.time_to_first_token = now
            self._metrics.time_to_first_token.observe(now)
        first = self._first.setdefault(event.sample_index, now)
        self.completion_tokens += len(event.tokens)
        if event.finish is not None:
            self.finished += 1
            self._metrics.count_finish(event.finish.reason)
            if event.finish.usage.completion > 1:
                self._metrics.time_per_output_token.observe((now - first) / (event.finish.usage.completion - 1))

    def cut(self, num_samples: int, reason: FinishReason) -> None:
        """Of ``num_samples``, those that had not ended never will: their caller left, or the engine died."""
        for _ in range(0 if self._is_cut else num_samples - self.finished):
            self._metrics.count_finish(reason)
        self._is_cut = True

    def end(self) -> None:
        """Every sample ended."""
        self._metrics.latency.observe(self.elapsed)


class _EngineCollector(Collector):
    """The engine's own numbers, as of its last report."""

    def __init__(self, model_name: str, engine_stats: Callable[[], EngineStats | None]) -> None:
        self._labels = [model_name]
        self._engine_stats = engine_stats

    def collect(self) -> Iterator[Metric]:
        """Nothing before the first report."""
        stats = self._engine_stats()
        if stats is None:
            return
        blocks, totals, drafted = stats.blocks, stats.totals, stats.totals.drafted
        yield self._gauge("vllm:num_requests_running", "Samples that compute.", {(): stats.running})
        yield self._gauge("vllm:num_requests_waiting", "Samples that wait for a place.", {(): stats.waiting})
        usage = blocks.used / blocks.total
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all of them.", {(): usage})
        counters = (
            ("vllm:prompt_tokens", "Prompt tokens of requests that drew a token.", totals.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", totals.generation_tokens),
            ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", totals.prefix_queried_tokens),
            ("vllm:prefix_cache_hits", "Prompt tokens found there.", totals.prefix_hit_tokens),
            ("vllm:num_preemptions", "Samples that lost their blocks and were computed again.", totals.preemptions),
            ("vllm:spec_decode_num_drafts", "Draft trees offered to the model.", drafted.trees),
            ("vllm:spec_decode_num_draft_tokens", "Guesses in them.", drafted.offered),
            ("vllm:spec_decode_num_accepted_tokens", "Guesses that became output.", drafted.accepted),
            ("espalier:spec_decode_num_forced_tokens", "Those of them that were forced.", drafted.forced),
            ("espalier:spec_decode_num_rejected_by_model_tokens", "Guesses that it did not take.", drafted.rejected),
            (
                "espalier:spec_decode_num_rejected_by_grammar_tokens",
                "Guesses that were never offered, because a constraint forbids them.",
                drafted.rejected_by_grammar,
            ),
        )
        for name, text, value in counters:
            yield self._counter(name, text, {(): value})
        yield self._counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "How often the first, second, … guess of a step became output.",
            {(str(position),): count for position, count in enumerate(drafted.per_position)},
            "position",
        )
        yield self._gauge(
            "espalier:spec_decode_budget_tokens",
            "Guesses that the last step was held to be worth, of the requests that leave the choice to the server.",
            {(): stats.choice.budget},
        )
        yield self._gauge(
            "espalier:spec_decode_acceptance",
            "Share of a drafter's guesses that the model takes where it gets to them, as the chooser has learnt it.",
            {(drafter,): share for drafter, share in stats.choice.acceptance.items()},
            "drafter",
        )
        yield self._counter(
            "espalier:step_seconds",
            "Wall time of the engine's steps.",
            {(stage,): spent for stage, spent in totals.seconds.items()},
            "stage",
        )

    def _counter(self, name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
        family = CounterMetricFamily(name, text, labels=[_LABEL, *labels])
        for label, value in values.items():
            family.add_metric([*self._labels, *label], value)
        return family

    def _gauge(self, name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
        family = GaugeMetricFamily(name, text, labels=[_LABEL, *labels])
        for label, value in values.items():
            family.add_metric([*self._labels, *label], value)
        return family
