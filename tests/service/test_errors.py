"""Exceptions to statuses, and statuses over a real channel."""

from __future__ import annotations

import logging

import pytest
from google.rpc import code_pb2, error_details_pb2

from decoding.errors import (
    CapacityError,
    ConstraintError,
    EspalierError,
    GrammarStateError,
    InvalidRequestError,
    ModelLoadError,
    PreconditionError,
    UnavailableError,
    UnsupportedConstraintError,
)
from service.errors import DOMAIN, MAX_TEXT_BYTES, DeadlineError, field_of, fields_under, to_status

CODES = {
    InvalidRequestError("n", "is 0"): code_pb2.INVALID_ARGUMENT,
    ConstraintError("constraint.regex", "does not parse"): code_pb2.INVALID_ARGUMENT,
    UnsupportedConstraintError("constraint.json_schema", "x", "/not"): code_pb2.UNIMPLEMENTED,
    CapacityError("full", retry_after_s=2.5): code_pb2.RESOURCE_EXHAUSTED,
    PreconditionError("no template"): code_pb2.FAILED_PRECONDITION,
    UnavailableError("draining"): code_pb2.UNAVAILABLE,
    DeadlineError("late"): code_pb2.DEADLINE_EXCEEDED,
    GrammarStateError("stuck"): code_pb2.INTERNAL,
    ModelLoadError("broken"): code_pb2.INTERNAL,
    EspalierError("odd"): code_pb2.INTERNAL,
}


def details_of(status):
    """The details by message name."""
    found = {}
    for packed in status.details:
        kind = getattr(error_details_pb2, packed.type_url.rpartition(".")[2])
        message = kind()
        assert packed.Unpack(message)
        found[kind.__name__] = message
    return found


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=[type(error).__name__ for error in CODES])
def test_every_error_has_its_code_and_an_error_info(error, code):
    status = to_status(error)
    assert status.code == code
    assert status.message == str(error)
    assert details_of(status)["ErrorInfo"].domain == DOMAIN


def test_every_error_of_the_tree_is_in_the_table():
    def tree(kind):
        return {kind}.union(*(tree(child) for child in kind.__subclasses__() if child.__module__ == "decoding.errors"))

    assert tree(EspalierError) <= {type(error) for error in CODES}


def test_a_field_travels_as_bad_request_and_a_pointer_as_metadata():
    status = to_status(ConstraintError("constraint.json_schema", "minLength > maxLength", "/properties/a"))
    details = details_of(status)
    (violation,) = details["BadRequest"].field_violations
    assert violation.field == "constraint.json_schema"
    assert "minLength" in violation.description
    assert details["ErrorInfo"].metadata["pointer"] == "/properties/a"


def test_a_full_queue_says_when_to_come_back():
    details = details_of(to_status(CapacityError("full", retry_after_s=2.5)))
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == 2500
    assert details["QuotaFailure"].violations[0].description == "full"


def test_an_unexpected_error_tells_an_id_and_nothing_else(caplog):
    with caplog.at_level(logging.ERROR):
        status = to_status(RuntimeError("/secret/path"))
    assert status.code == code_pb2.INTERNAL
    assert "secret" not in str(status)
    (record,) = caplog.records
    assert record.error_id in status.message
    assert details_of(status)["ErrorInfo"].metadata["error_id"] == record.error_id
    assert record.exc_info[1].args == ("/secret/path",)


def test_long_texts_are_cut_at_a_whole_character():
    status = to_status(InvalidRequestError("model", "東" * 10_000))
    assert len(status.message.encode()) <= MAX_TEXT_BYTES
    assert status.message.endswith("東…")


def test_a_prefix_names_the_message_that_holds_the_request():
    with pytest.raises(InvalidRequestError) as caught, fields_under("request"):
        raise InvalidRequestError("sampling.top_p", "is 0")
    assert field_of(caught.value) == "request.sampling.top_p"
    assert to_status(caught.value).message == "request.sampling.top_p: is 0"
    assert field_of(CapacityError("full")) == ""
