"""One running request: the engine's events become messages of the wire.

Invariant: a whole answer is a stream's updates, joined by sample, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from decoding.finish import FinishReason
from engine.request import Finish, TokenEvent, Usage
from grammars.constraint import UnenforcedKeyword
from grammars.structural.layout import Layout
from service.engine_messages import Submit
from service.sample_text import SampleText
from service.stops import StopAutomaton
from service.v1 import common_pb2
from service.v1 import generation_pb2 as pb

_REASONS = {
    FinishReason.EOS: common_pb2.FINISH_REASON_EOS,
    FinishReason.STOP_STRING: common_pb2.FINISH_REASON_STOP_STRING,
    FinishReason.GRAMMAR_END: common_pb2.FINISH_REASON_CONSTRAINT_END,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    FinishReason.NO_LEGAL_TOKEN: common_pb2.FINISH_REASON_NO_LEGAL_TOKEN,
    FinishReason.CANCELLED: common_pb2.FINISH_REASON_CANCELLED,
    FinishReason.ERROR: common_pb2.FINISH_REASON_ERROR,
}
_COMPLETENESS = {
    None: common_pb2.COMPLETENESS_UNSPECIFIED,
    True: common_pb2.COMPLETENESS_COMPLETE,
    False: common_pb2.COMPLETENESS_VALID_PREFIX,
}

_PER_POSITION = "accepted_per_position"

Update = pb.StreamDelta | pb.StreamFinished


class AnswerReader:
    """Reads the events of one request's samples."""

    def __init__(self, submit: Submit, token_bytes: Sequence[bytes], layout: Layout | None = None) -> None:
        """``token_bytes[i]`` are the bytes that token i adds to the text, which ``layout`` takes apart."""
        stops = StopAutomaton(submit.stop_strings) if submit.stop_strings else None
        self._token_bytes = token_bytes
        self._layout = layout
        self._texts = [SampleText(self._token_bytes, stops) for _ in range(submit.request.n)]
        self._shown: list[list[str]] = [[] for _ in range(submit.request.n)]

    def read(self, events: Sequence[TokenEvent]) -> Iterator[Update]:
        """One delta for each sample that gained tokens, then its finish where it ended."""
        by_sample = sorted(events, key=lambda event: event.sample_index)  # stable: a sample's events stay in order
        for index, own in groupby(by_sample, key=lambda event: event.sample_index):
            yield from self._read_sample(index, list(own))

    def _read_sample(self, index: int, events: Sequence[TokenEvent]) -> Iterator[Update]:
        finish = events[-1].finish
        tokens = [token for event in events for token in event.tokens]
        text = self._texts[index].feed(tokens)
        if finish is not None:
            text += self._texts[index].finish(finish.reason)
        if tokens or text:
            logprobs = [position for event in events for position in self._positions(event)]
            yield pb.StreamDelta(index=index, text=text, token_ids=tokens, logprobs=logprobs)
        if self._layout is not None:
            self._shown[index].append(text)
        if finish is not None:
            yield self._finished(index, finish)

    def _finished(self, index: int, finish: Finish) -> pb.StreamFinished:
        return pb.StreamFinished(
            index=index,
            finish_reason=_REASONS[finish.reason],
            completeness=_COMPLETENESS[finish.constraint_complete],
            message=finish.message,
            usage=_usage(finish.usage),
            parts=None if self._layout is None else _parts(self._layout, "".join(self._shown[index])),
        )

    def _positions(self, event: TokenEvent) -> Iterator[common_pb2.PositionLogprobs]:
        """One per token where the request asked for them, else none."""
        for token, logprobs in zip(event.tokens, event.logprobs, strict=bool(event.logprobs)):
            top = [self._logprob(*pair) for pair in logprobs.top]
            yield common_pb2.PositionLogprobs(chosen=self._logprob(token, logprobs.token), top=top)

    def _logprob(self, token: int, value: float) -> common_pb2.TokenLogprob:
        return common_pb2.TokenLogprob(token_id=token, token=self._token_bytes[token], logprob=value)


class WholeAnswer:
    """Collects updates into samples."""

    def __init__(self, num_samples: int) -> None:
        self._samples = [pb.Sample(index=index) for index in range(num_samples)]
        self._texts: list[list[str]] = [[] for _ in range(num_samples)]

    def add(self, update: Update) -> None:
        """Take the next update of any sample."""
        sample = self._samples[update.index]
        if isinstance(update, pb.StreamDelta):
            self._texts[update.index].append(update.text)
            sample.token_ids.extend(update.token_ids)
            sample.logprobs.extend(update.logprobs)
        else:
            sample.text = "".join(self._texts[update.index])
            sample.finish_reason = update.finish_reason
            sample.completeness = update.completeness
            sample.message = update.message
            sample.usage.CopyFrom(update.usage)
            if update.HasField("parts"):
                sample.parts.CopyFrom(update.parts)

    def response(self, submit: Submit, model: str, unenforced: Sequence[UnenforcedKeyword]) -> pb.GenerateResponse:
        """The response, once every sample is complete."""
        return pb.GenerateResponse(
            request_id=submit.request.request_id,
            model=model,
            samples=self._samples,
            usage=_sum([sample.usage for sample in self._samples]),
            seed=submit.request.params.seed,
            unenforced=to_wire(unenforced),
        )


def to_wire(unenforced: Sequence[UnenforcedKeyword]) -> list[common_pb2.UnenforcedKeyword]:
    """The report on what a constraint does not enforce."""
    return [
        common_pb2.UnenforcedKeyword(pointer=item.pointer, keyword=item.keyword, reason=item.reason, field=item.field)
        for item in unenforced
    ]


def _parts(layout: Layout, text: str) -> common_pb2.TextParts:
    reading = layout.read(text)
    calls = [piece for piece in reading.pieces if layout.are_calls and piece.tag is not None and piece.is_whole]
    return common_pb2.TextParts(
        reasoning=reading.reasoning,
        content=reading.content,
        parts=[
            common_pb2.TextPart(
                text=piece.text,
                begin=None if piece.tag is None else layout.tags[piece.tag].begin,
                cut=not piece.is_whole,
            )
            for piece in reading.pieces
        ],
        tool_calls=[
            common_pb2.ToolCall(name=layout.tags[call.tag].name, arguments=call.text)
            for call in calls
            if call.tag is not None
        ],
    )


def _usage(usage: Usage) -> common_pb2.Usage:
    return common_pb2.Usage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        drafted_tokens=usage.drafted,
        accepted_tokens=usage.accepted,
        forced_tokens=usage.forced,
        preemptions=usage.preemptions,
        rejected_by_model_tokens=usage.rejected_by_model,
        rejected_by_grammar_tokens=usage.rejected_by_grammar,
        accepted_per_position=usage.accepted_per_position,
        draft_ms=usage.draft_ms,
        mask_ms=usage.mask_ms,
        forward_ms=usage.forward_ms,
        sample_ms=usage.sample_ms,
    )


def _sum(usages: Sequence[common_pb2.Usage]) -> common_pb2.Usage:
    """The samples share one prompt, which is counted once, as the first of them met it."""
    total = common_pb2.Usage()
    for name in common_pb2.Usage.DESCRIPTOR.fields_by_name:
        if name != _PER_POSITION:
            setattr(total, name, sum(getattr(usage, name) for usage in usages))
    total.prompt_tokens, total.cached_tokens = usages[0].prompt_tokens, usages[0].cached_tokens
    columns = zip_longest(*(usage.accepted_per_position for usage in usages), fillvalue=0)
    total.accepted_per_position.extend(map(sum, columns))
    return total
