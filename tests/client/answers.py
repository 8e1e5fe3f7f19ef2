"""What a scripted server answers."""

from __future__ import annotations

import threading

import grpc
from google.rpc import status_pb2
from grpc_status import rpc_status

from service.v1 import common_pb2, generation_pb2


def response(text: str = '{"name":"Ann","age":3}', **options) -> generation_pb2.GenerateResponse:
    sample = generation_pb2.Sample(
        text=text,
        token_ids=[7, 8],
        logprobs=[
            common_pb2.PositionLogprobs(
                chosen=common_pb2.TokenLogprob(token_id=7, token=b"\xc3", logprob=-0.5),
                top=[common_pb2.TokenLogprob(token_id=9, token=b"x", logprob=-0.25)],
            )
        ],
        finish_reason=common_pb2.FINISH_REASON_CONSTRAINT_END,
        completeness=common_pb2.COMPLETENESS_COMPLETE,
        usage=common_pb2.Usage(prompt_tokens=3, completion_tokens=2),
    )
    usage = common_pb2.Usage(prompt_tokens=3, completion_tokens=2, drafted_tokens=5)
    return generation_pb2.GenerateResponse(
        request_id="r", model="tiny", samples=[sample], usage=usage, seed=11, **options
    )


def started(seed: int = 11) -> generation_pb2.GenerateStreamResponse:
    event = generation_pb2.StreamStarted(request_id="r", model="tiny", seed=seed, prompt_tokens=3)
    return generation_pb2.GenerateStreamResponse(started=event)


def delta(text: str, index: int = 0) -> generation_pb2.GenerateStreamResponse:
    event = generation_pb2.StreamDelta(index=index, text=text, token_ids=[1])
    return generation_pb2.GenerateStreamResponse(delta=event)


def finished(index: int = 0) -> generation_pb2.GenerateStreamResponse:
    event = generation_pb2.StreamFinished(
        index=index,
        finish_reason=common_pb2.FINISH_REASON_EOS,
        completeness=common_pb2.COMPLETENESS_COMPLETE,
        usage=common_pb2.Usage(prompt_tokens=3, completion_tokens=2),
    )
    return generation_pb2.GenerateStreamResponse(finished=event)


def fail(code: grpc.StatusCode, message: str):
    return lambda request, context: context.abort(code, message)


def fail_with(status: status_pb2.Status):
    return lambda request, context: context.abort_with_status(rpc_status.to_status(status))


def wait_forever():
    """An answer that never comes, and the event that is set when its call has ended."""
    ended, begun = threading.Event(), threading.Event()

    def answer(request, context):
        context.add_callback(ended.set)
        begun.set()
        ended.wait(30)
        return generation_pb2.GenerateResponse()

    return answer, begun, ended
