"""What `espalier demo` asks for, and how it checks what comes back.

Invariant: a check uses an independent library (jsonschema, re) or plain membership, never Espalier's own code.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from service.client import Options

PASSAGE = (
    "Grace Hopper was born in New York City in 1906. She taught mathematics, joined the United States Navy, and wrote "
    "one of the first compilers. She died in 1992."
)
DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
SENTIMENTS = ("positive", "neutral", "negative")

Check = Callable[[str], str]
"""Text to problem; empty where the text is valid."""


class Person(BaseModel):
    """Flat extraction."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=40)]
    birthplace: Annotated[str, Field(max_length=40)]
    birth_year: Annotated[int, Field(ge=1000, le=2100)]
    known_for: Annotated[str, Field(max_length=60)]


class Unit(enum.StrEnum):
    """An enumeration inside an array's items."""

    GRAM = "g"
    MILLILITRE = "ml"
    SPOON = "tablespoon"
    PIECE = "piece"


class Ingredient(BaseModel):
    """Item of an array."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=24)]
    amount: Annotated[int, Field(ge=1, le=1000)]
    unit: Unit


class Recipe(BaseModel):
    """Nested objects, arrays with bounds, enumerations."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=40)]
    course: Literal["starter", "main", "dessert"]
    minutes: Annotated[int, Field(ge=1, le=240)]
    ingredients: Annotated[list[Ingredient], Field(min_length=2, max_length=4)]
    steps: Annotated[list[Annotated[str, Field(max_length=60)]], Field(min_length=1, max_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One request of the demo.

    Attributes:
        title: what it shows.
        prompt: what the user of the chat says.
        schema: pydantic model of the answer, where it is JSON.
        options: options of the client beside the prompt.
        checked_by: the independent check's name.
        check: the check.
    """

    title: str
    prompt: str
    schema: type[BaseModel] | None = None
    options: Options
    checked_by: str
    check: Check

    @property
    def request(self) -> Options:
        """The options, with the prompt as a chat."""
        return {**self.options, "chat": [{"role": "user", "content": self.prompt}]}


def scenarios() -> tuple[Scenario, ...]:
    """The constrained requests."""
    greedy: Options = {"temperature": 0.0, "max_tokens": 512}
    return (
        Scenario(
            title="JSON Schema: extract a person from a passage",
            prompt=f"{PASSAGE}\n\nWrite the person's data as JSON.",
            schema=Person,
            options={**greedy, "whitespace": "spaced"},
            checked_by="jsonschema",
            check=json_check(Person),
        ),
        Scenario(
            title="JSON Schema: nested objects, arrays and enums",
            prompt="Write a recipe for apple pancakes as JSON.",
            schema=Recipe,
            options={**greedy, "whitespace": "spaced"},
            checked_by="jsonschema",
            check=json_check(Recipe),
        ),
        Scenario(
            title="Regular expression: a date",
            prompt="When did humans first walk on the Moon? Answer with a date, year first.",
            options={**greedy, "regex": DATE},
            checked_by="re",
            check=regex_check(DATE),
        ),
        Scenario(
            title="Choices: sentiment",
            prompt="Is this review positive, neutral or negative?\n\nThe soup was cold and the waiter was rude.",
            options={**greedy, "choices": SENTIMENTS},
            checked_by="membership",
            check=choices_check(SENTIMENTS),
        ),
    )


def free_chat() -> Scenario:
    """The request without a constraint, whose text is shown as it comes."""
    return Scenario(
        title="Free text: a streamed chat",
        prompt="Explain in two sentences what an espalier is.",
        options={"temperature": 0.0, "max_tokens": 96},
        checked_by="not empty",
        check=lambda text: "" if text.strip() else "the text is empty",
    )


def json_check(model: type[BaseModel]) -> Check:
    """JSON that is valid under the model's JSON Schema, by jsonschema."""
    validator = Draft202012Validator(model.model_json_schema())

    def check(text: str) -> str:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            return f"not JSON: {error}"
        return "; ".join(error.message for error in validator.iter_errors(value))

    return check


def regex_check(pattern: str) -> Check:
    """A full match, by Python's re."""
    return lambda text: "" if re.fullmatch(pattern, text) else f"{text!r} does not match {pattern}"


def choices_check(choices: Sequence[str]) -> Check:
    """One of the choices."""
    return lambda text: "" if text in choices else f"{text!r} is none of {', '.join(choices)}"
