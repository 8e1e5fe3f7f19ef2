"""What is generated: prompts of our own, made of parts so that no two in a batch are alike.

Invariant: a workload has at least as many different prompts as the largest batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from grammars.constraint import Whitespace

COUNT = 16
"""Prompts of each workload."""

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "customer": {
                "type": "object",
                "properties": {
                    "full_name": {"type": "string", "maxLength": 40},
                    "city": {"type": "string", "maxLength": 40},
                },
                "required": ["full_name", "city"],
                "additionalProperties": False,
            },
            "product": {"type": "string", "maxLength": 40},
            "quantity": {"type": "integer", "minimum": 1, "maximum": 999},
            "delivery_status": {"enum": ["ordered", "in transit", "delivered", "returned"]},
            "express_delivery": {"type": "boolean"},
            "order_number": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        },
        "required": ["customer", "product", "quantity", "delivery_status", "express_delivery", "order_number"],
        "additionalProperties": False,
    }
)

_PEOPLE = (
    "Mara Lindqvist",
    "Tom Okafor",
    "Ines Barreto",
    "Paul Wenger",
    "Yuki Tanaka",
    "Olga Petrova",
    "Sam Reed",
    "Li Na",
)
_CITIES = ("Lisbon", "Gothenburg", "Lagos", "Basel", "Osaka", "Tartu", "Leeds", "Chengdu")
_GOODS = ("garden hoses", "desk lamps", "copper kettles", "wool blankets", "bicycle pumps")
_STATES = ("was delivered yesterday", "has been sent back", "is on the road", "has only just been placed")
_TOPICS = (
    "Why is the sky blue?",
    "Give me three tips for sleeping well.",
    "What does a compiler do?",
    "Tell a short story about a lighthouse.",
    "How do I cook rice without burning it?",
    "Explain inflation to a child.",
    "What makes a good password?",
    "Describe a market on a rainy morning.",
    "Why do cats purr?",
    "Write a polite note that cancels a meeting.",
    "How does a bicycle stay upright?",
    "What is the difference between weather and climate?",
    "Suggest a name for a bakery, and say why.",
    "What should one see in a day in a harbour town?",
    "How are mountains made?",
    "Write four lines about winter.",
)
_HARBOUR = (
    "The harbour of {city} will be closed to large ships for the whole of next week, because the northern pier needs "
    "new foundations. {person}, who leads the works, expects that smaller boats can still use the southern basin."
)
_LIBRARY = (
    "The library of {city} opens again after two years of repairs. {person} collected eleven thousand signatures to "
    "keep the old reading room, whose green lamps were found in a cellar and cleaned one by one."
)
_STORM = (
    "A storm has torn the roof from the market hall of {city}. Nobody was hurt, since the stalls had been cleared on "
    "the evening before. {person} of the fire brigade asks people to stay away from the square until Thursday."
)
_NEWS = (_HARBOUR, _LIBRARY, _STORM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind of request.

    Attributes:
        name: in tables.
        prompts: user messages, all different.
        max_tokens: of each answer.
        schema: JSON Schema text, or None for free text.
        whitespace: between JSON tokens.
    """

    name: str
    prompts: tuple[str, ...]
    max_tokens: int
    schema: str | None = None
    whitespace: Whitespace = Whitespace.COMPACT


def workloads() -> tuple[Workload, ...]:
    """All of them."""
    mails = tuple(map(_mail, range(COUNT)))
    return (
        Workload(name="extraction, compact", prompts=mails, max_tokens=96, schema=SCHEMA),
        Workload(name="extraction, spaced", prompts=mails, max_tokens=96, schema=SCHEMA, whitespace=Whitespace.SPACED),
        Workload(name="chat", prompts=_TOPICS, max_tokens=96),
        Workload(name="summary with copying", prompts=tuple(map(_summary, range(COUNT))), max_tokens=96),
    )


def _mail(index: int) -> str:
    person, city = _PEOPLE[index % 8], _CITIES[(index * 3 + index // 8) % 8]
    goods, state = _GOODS[index % 5], _STATES[index % 4]
    speed = "by express" if index % 3 else "by ordinary mail"
    number = f"{chr(65 + index)}{chr(90 - index)}-{1000 + 577 * index}"
    return (
        f"Hello, this is {person} from {city}. My order {number} of {2 + 7 * index} {goods}, sent {speed}, {state}. "
        "Could you check it? Thank you!\n\nPut what this mail says into JSON: customer, product, quantity, "
        "delivery status, express delivery, order number."
    )


def _summary(index: int) -> str:
    text = _NEWS[index % 3].format(city=_CITIES[index % 8], person=_PEOPLE[(index * 5 + index // 8) % 8])
    return (
        f"{text}\n\nSummarise this in two sentences. Quote the most important sentence word for word first, then say "
        "who is named in the text."
    )
