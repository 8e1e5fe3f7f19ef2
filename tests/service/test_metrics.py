"""Prometheus metrics: names, values, and the HTTP endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.request

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from decoding.finish import FinishReason
from drafters.choosing import ChoiceState
from engine.blocks import BlockCounts
from engine.drafted import Drafted
from engine.request import Finish, TokenEvent, Usage
from engine.stats import EngineStats, Totals
from service.errors import AddressError
from service.loading import _serve_metrics
from service.metrics import RequestClock, ServerMetrics
from service.v1 import generation_pb2 as pb

STATS = EngineStats(
    running=3,
    waiting=2,
    blocks=BlockCounts(total=10, free=4, cached=1, used=5),
    totals=Totals(
        prompt_tokens=11,
        generation_tokens=12,
        prefix_queried_tokens=13,
        prefix_hit_tokens=14,
        preemptions=15,
        drafted=Drafted(trees=16, offered=117, accepted=18, forced=19, rejected_by_grammar=20, per_position=[12, 6]),
        seconds={"draft": 0.5, "forward": 2.0},
    ),
    choice=ChoiceState(budget=21, acceptance={"ngram": 0.25, "forced": 1.0}),
)
VALUES = {
    "vllm:num_requests_running": 3,
    "vllm:num_requests_waiting": 2,
    "vllm:kv_cache_usage_perc": 0.5,
    "vllm:prompt_tokens_total": 11,
    "vllm:generation_tokens_total": 12,
    "vllm:prefix_cache_queries_total": 13,
    "vllm:prefix_cache_hits_total": 14,
    "vllm:num_preemptions_total": 15,
    "vllm:spec_decode_num_drafts_total": 16,
    "vllm:spec_decode_num_draft_tokens_total": 117,
    "vllm:spec_decode_num_accepted_tokens_total": 18,
    "espalier:spec_decode_num_forced_tokens_total": 19,
    "espalier:spec_decode_num_rejected_by_model_tokens_total": 99,
    "espalier:spec_decode_num_rejected_by_grammar_tokens_total": 20,
    "espalier:spec_decode_budget_tokens": 21,
}


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, {"model_name": "m", **labels})


def event(index=0, finish=None, tokens=1):
    end = Finish(reason=finish, usage=Usage(completion=tokens)) if finish else None
    return TokenEvent(request_id="r", sample_index=index, tokens=(1,), finish=end)


def test_the_engines_numbers_are_those_of_its_last_report():
    metrics = ServerMetrics("m", lambda: STATS)
    assert {name: value(metrics, name) for name in VALUES} == VALUES
    per_position = [value(metrics, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position=p) for p in "01"]
    assert per_position == [12, 6]
    assert value(metrics, "espalier:step_seconds_total", stage="forward") == 2.0
    assert value(metrics, "espalier:spec_decode_acceptance", drafter="ngram") == 0.25


def test_before_the_first_report_the_engine_has_no_numbers():
    metrics = ServerMetrics("m", lambda: None)
    assert value(metrics, "vllm:num_requests_running") is None
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 0


def test_a_request_is_observed_once_for_its_first_token_and_end_and_per_sample_between():
    metrics = ServerMetrics("m", lambda: None)
    clock = RequestClock(metrics)
    for seen in (event(0), event(1), event(0, FinishReason.EOS, 3), event(1, FinishReason.LENGTH, 1)):
        clock.see(seen)
    clock.end()
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 1
    assert value(metrics, "vllm:time_per_output_token_seconds_count") == 1  # one sample has a single token
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 1
    assert value(metrics, "vllm:request_success_total", finished_reason="eos") == 1
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 1
    assert 0 <= clock.time_to_first_token <= clock.elapsed


def test_the_endpoint_speaks_prometheus_and_listens_on_loopback():
    metrics = ServerMetrics("m", lambda: STATS)
    with contextlib.ExitStack() as stack:
        port = _serve_metrics(0, metrics, stack)
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        samples = {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
        assert samples.items() >= VALUES.items()
        with contextlib.ExitStack() as other, pytest.raises(AddressError, match="choose another --metrics-port"):
            _serve_metrics(port, metrics, other)


async def test_a_served_request_shows_up(run_server):
    async with run_server() as server:
        await server.generation.Generate(pb.GenerateRequest(text="ab"))
        registry = server.model.metrics.registry
        assert registry.get_sample_value("vllm:e2e_request_latency_seconds_count", {"model_name": "fake"}) == 1
        assert registry.get_sample_value("vllm:generation_tokens_total", {"model_name": "fake"}) > 0


def endless(**request):
    sampling = pb.SamplingOptions(max_tokens=100, ignore_eos=True)
    return pb.GenerateRequest(text="ab", sampling=sampling, **request)


async def until_logged(caplog):
    for _ in range(1000):
        if lines := [record for record in caplog.records if record.name == "service.run"]:
            return lines[0]
        await asyncio.sleep(0.01)
    pytest.fail("the request was not logged")


def finished(server, reason):
    labels = {"model_name": "fake", "finished_reason": reason}
    return server.model.metrics.registry.get_sample_value("vllm:request_success_total", labels)


async def test_a_stream_that_is_left_counts_as_cancelled_with_the_tokens_that_it_got(run_server, caplog):
    async with run_server(engine={"step_s": 0.02}) as server:
        with caplog.at_level(logging.INFO):
            call = server.generation.GenerateStream(pb.GenerateStreamRequest(request=endless(n=2)))
            received = 0
            while received < 3:
                received += len((await call.read()).delta.token_ids)
            call.cancel()
            line = await until_logged(caplog)
        assert line.finished == 0
        assert line.completion_tokens >= received
        assert finished(server, "cancelled") == 2


async def test_a_deadline_counts_as_cancelled_and_a_dead_engine_as_an_error(run_server, fake, caplog):
    async with run_server(engine={"step_s": 0.02}) as server:
        with pytest.raises(grpc.aio.AioRpcError, match=r"(?i)deadline"):  # ours, or the client's own
            await server.generation.Generate(endless(), timeout=0.3)
        await server.freed()
        assert finished(server, "cancelled") == 1
        with pytest.raises(grpc.aio.AioRpcError, match="engine is dead"):
            await server.generation.Generate(endless(tenant=fake.CRASH))
        assert finished(server, "error") == 1
