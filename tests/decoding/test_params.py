from __future__ import annotations

import copy
import math
import pickle
import re
from pathlib import Path
from types import MappingProxyType

import pytest

from decoding.errors import InvalidRequestError
from decoding.params import SamplingParams

OUTSIDE = {
    "max_tokens": [0, -1, 2**21],
    "min_tokens": [-1, 257],
    "temperature": [-0.1, 100.1, math.inf],
    "top_k": [-1, 2**31],
    "top_p": [0.0, -0.1, 1.1],
    "min_p": [-0.1, 1.1],
    "repetition_penalty": [0.0, -1.0, 101.0, math.inf],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1, -math.inf],
    "seed": [-1, 2**64, 10**400],
    "logprobs": [-1, 21],
}
FLOATS = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
INTEGERS = ["max_tokens", "min_tokens", "top_k", "seed", "logprobs"]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OUTSIDE.items() for value in values])
def test_a_value_outside_its_range_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.field == f"sampling.{name}"


@pytest.mark.parametrize("name", FLOATS)
def test_not_a_number_is_refused_by_name(name):
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: math.nan})
    assert caught.value.field == f"sampling.{name}"


@pytest.mark.parametrize("name", INTEGERS)
def test_a_fraction_is_refused_where_a_whole_number_is_meant(name):
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: 1.5})
    assert caught.value.field == f"sampling.{name}"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"logit_bias": {3: 100.5}}, "logit_bias[3]"),
        ({"logit_bias": {3: math.nan}}, "logit_bias[3]"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"bad_words": ((1,),) * 257}, "bad_words"),
        ({"bad_words": ((1,), ())}, "bad_words[1]"),
        ({"bad_words": ((1,) * 65,)}, "bad_words[0]"),
    ],
)
def test_collections_are_bounded(params, field):
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**params)
    assert caught.value.field == f"sampling.{field}"


def test_the_ends_of_every_range_are_allowed():
    SamplingParams(
        max_tokens=1 << 20,
        min_tokens=1 << 20,
        temperature=0,
        top_k=1 << 30,
        top_p=1,
        min_p=1,
        repetition_penalty=0.01,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=2**64 - 1,
        logprobs=20,
    )


@pytest.mark.parametrize(
    ("params", "field"),
    [({"logit_bias": {10: 1.0}}, "logit_bias"), ({"logit_bias": {-1: 1.0}}, "logit_bias"),
     ({"bad_words": ((1,), (2, 10))}, "bad_words[1]")],
)  # fmt: skip
def test_ids_outside_the_vocabulary_are_refused(params, field):
    SamplingParams(logit_bias={9: 1.0}, bad_words=((0, 9),)).check_vocabulary(10)
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**params).check_vocabulary(10)
    assert caught.value.field == f"sampling.{field}"
    assert "[0, 10)" in str(caught.value)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda params: pickle.loads(pickle.dumps(params))])
def test_a_copy_is_equal(clone):
    params = SamplingParams(temperature=0.5, logit_bias={1: 2.0}, bad_words=((1, 2),), seed=2**64 - 1, logprobs=3)
    assert clone(params) == params
    assert type(clone(params).logit_bias) is MappingProxyType


def test_the_callers_mapping_is_copied():
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 3.0
    assert params.logit_bias == {1: 2.0}


def test_every_field_is_documented_with_its_default():
    readme = Path(__file__).parents[2] / "decoding" / "README.md"
    fields = readme.read_text(encoding="utf-8").split("## Fields")[1].split("##")[0]
    documented = {
        name: cells[2].strip().replace(",", "")
        for line in fields.splitlines()
        if len(cells := line.split("|")) > 3
        for name in re.findall(r"`(\w+)`", cells[1])
    }
    assert documented == {
        name: written(getattr(SamplingParams(), name)) for name in SamplingParams.__dataclass_fields__
    }


def written(default):
    if default is None or default in ({}, ()):
        return "none"
    return "false" if default is False else f"{default:g}"
