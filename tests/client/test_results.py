from __future__ import annotations

import dataclasses
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError, field_validator

from service import answer as server_answer
from service.client import (
    Completeness,
    FinishReason,
    Generation,
    IncompleteOutputError,
    InternalError,
    InvalidArgumentError,
    Limits,
    Model,
    Request,
    ResourceExhaustedError,
    UnenforcedKeyword,
    Usage,
    decode,
    errors,
)
from service.client.events import Assembly, total_usage
from service.v1 import common_pb2, generation_pb2, model_pb2


class Person(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _no_digits(cls, name: str) -> str:
        if any(character.isdigit() for character in name):
            raise ValueError("has a digit")
        return name


def answer(*texts: str, completeness=common_pb2.COMPLETENESS_COMPLETE, reason=common_pb2.FINISH_REASON_EOS, **sample):
    return generation_pb2.GenerateResponse(
        request_id="r1",
        model="m",
        seed=5,
        samples=[
            generation_pb2.Sample(index=index, text=text, finish_reason=reason, completeness=completeness, **sample)
            for index, text in enumerate(texts)
        ],
    )


def decoded(*texts: str, schema=None, **options) -> Generation:
    return decode.generation(answer(*texts, **options), Request("p", schema=schema).parser)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Usage, common_pb2.Usage),
        (UnenforcedKeyword, common_pb2.UnenforcedKeyword),
        (Limits, model_pb2.Limits),
        (Model, model_pb2.Model),
    ],
)
def test_results_have_every_field_of_their_message(result, message):
    assert {field.name for field in dataclasses.fields(result)} == set(message.DESCRIPTOR.fields_by_name)


def test_every_finish_reason_of_the_wire_has_its_namesake():
    for name, value in common_pb2.FinishReason.items():
        expected = FinishReason.UNKNOWN if name.endswith("UNSPECIFIED") else FinishReason[name[len("FINISH_REASON_") :]]
        assert decode.finish_reason(value) is expected
    assert decode.finish_reason(999) is FinishReason.UNKNOWN


def test_every_completeness_of_the_wire_has_its_own():
    assert [decode.completeness(value) for value in (0, 1, 2, 99)] == [
        Completeness.UNCONSTRAINED,
        Completeness.COMPLETE,
        Completeness.VALID_PREFIX,
        Completeness.VALID_PREFIX,
    ]


def test_parsed_is_the_instance_and_stays_the_same():
    generation = decoded('{"name":"Ann"}', schema=Person)
    assert generation.parsed == Person(name="Ann")
    assert generation.parsed is generation.parsed
    assert (generation.text, generation.finish_reason, generation.complete) == (
        '{"name":"Ann"}',
        FinishReason.EOS,
        True,
    )


def test_parsed_of_a_cut_document_raises_with_the_generation():
    cut = {"completeness": common_pb2.COMPLETENESS_VALID_PREFIX, "reason": common_pb2.FINISH_REASON_LENGTH}
    generation = decoded('{"name":"An', schema=Person, **cut)
    assert not generation.complete
    with pytest.raises(IncompleteOutputError, match="max_tokens") as caught:
        _ = generation.parsed
    assert caught.value.generation is generation
    assert caught.value.sample.text == '{"name":"An'
    with pytest.raises(IncompleteOutputError, match="length") as caught:
        _ = generation.samples[0].parsed
    assert caught.value.generation is None


def test_the_server_s_message_explains_an_incomplete_output():
    options = {"completeness": common_pb2.COMPLETENESS_VALID_PREFIX, "reason": common_pb2.FINISH_REASON_NO_LEGAL_TOKEN}
    with pytest.raises(IncompleteOutputError, match=r"no_legal_token.*bad_words leave nothing"):
        _ = decoded("{", schema=Person, message="bad_words leave nothing", **options).parsed


def test_one_cut_sample_does_not_hide_the_others():
    message = answer('{"name":"Ann"}', '{"name":"B')
    message.samples[1].completeness = common_pb2.COMPLETENESS_VALID_PREFIX
    generation = decode.generation(message, Request("p", schema=Person).parser)
    assert generation.samples[0].parsed == Person(name="Ann")
    with pytest.raises(IncompleteOutputError):
        _ = generation.samples[1].parsed


def test_validators_that_a_schema_cannot_carry_raise_pydantic_s_own_error():
    with pytest.raises(ValidationError, match="has a digit"):
        _ = decoded('{"name":"R2"}', schema=Person).parsed


@pytest.mark.parametrize(
    ("reason", "complete"),
    [("EOS", True), ("STOP_STRING", True), ("LENGTH", False), ("ERROR", False), ("CANCELLED", False)],
)
def test_free_text_is_complete_where_the_model_ended_it(reason, complete):
    options = {"completeness": 0, "reason": common_pb2.FinishReason.Value(f"FINISH_REASON_{reason}")}
    generation = decoded("some text", **options)
    assert generation.complete is complete
    assert generation.parsed == "some text"


def test_an_answer_without_samples_is_the_server_s_defect():
    with pytest.raises(InternalError):
        decode.generation(generation_pb2.GenerateResponse(), str)
    with pytest.raises(InternalError, match="1 items of 2"):
        decode.batch(generation_pb2.GenerateBatchResponse(results=[generation_pb2.BatchResult()]), [str, str])


def test_results_and_errors_travel_between_processes():
    generation = decoded("hello")
    assert pickle.loads(pickle.dumps(generation)) == generation
    made = [
        InvalidArgumentError("m", "f", "/p"),
        ResourceExhaustedError("m", 2.5),
        InternalError("m", "DATA_LOSS"),
        IncompleteOutputError(generation.samples[0], generation),
    ]
    for error in made:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)


def test_one_tree():
    concrete = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, errors.EspalierClientError) for kind in concrete)


numbers = {field.name: st.integers(0, 1000) for field in dataclasses.fields(Usage)}
usages = st.builds(Usage, **numbers | {"accepted_per_position": st.lists(st.integers(0, 9), max_size=4).map(tuple)})


@given(st.lists(usages, min_size=1, max_size=4))
def test_usage_of_a_stream_is_added_up_as_the_server_does_it(parts):
    theirs = server_answer._sum([common_pb2.Usage(**dataclasses.asdict(part)) for part in parts])
    assert total_usage(parts) == decode.usage(theirs)


def events_of(message: generation_pb2.GenerateResponse, cuts: dict[int, list[int]]):
    """The stream that gives the same answer: each text cut at the given places, samples in turn."""
    started = generation_pb2.StreamStarted(
        request_id=message.request_id, model=message.model, seed=message.seed, unenforced=message.unenforced
    )
    yield generation_pb2.GenerateStreamResponse(started=started)
    for sample in message.samples:
        places = [
            0,
            *sorted(place for place in cuts.get(sample.index, []) if place <= len(sample.text)),
            len(sample.text),
        ]
        for begin, end in itertools.pairwise(places):
            delta = generation_pb2.StreamDelta(index=sample.index, text=sample.text[begin:end])
            yield generation_pb2.GenerateStreamResponse(delta=delta)
        finished = generation_pb2.StreamFinished(
            index=sample.index,
            finish_reason=sample.finish_reason,
            completeness=sample.completeness,
            message=sample.message,
            usage=sample.usage,
        )
        yield generation_pb2.GenerateStreamResponse(finished=finished)


@given(st.lists(st.text(), min_size=1, max_size=3), st.dictionaries(st.integers(0, 2), st.lists(st.integers(0, 20))))
def test_a_stream_adds_up_to_the_whole_answer(texts, cuts):
    message = answer(*texts, usage=common_pb2.Usage(prompt_tokens=4, completion_tokens=2, cached_tokens=1))
    message.usage.CopyFrom(common_pb2.Usage(prompt_tokens=4, completion_tokens=2 * len(texts), cached_tokens=1))
    assembly = Assembly(str, num_samples=len(texts))
    events = list(events_of(message, cuts))
    for event in events[:-1]:
        assembly.take(event)
        assert not assembly.complete
        with pytest.raises(InternalError):
            assembly.generation()
    assembly.take(events[-1])
    assert assembly.generation() == decode.generation(message, str)


def test_events_of_an_unknown_kind_are_skipped():
    assert Assembly(str, num_samples=1).take(generation_pb2.GenerateStreamResponse()) is None
