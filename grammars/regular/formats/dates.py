"""Dates, times and durations (RFC 3339, sections 5.6 and 5.7 and appendix A).

Invariant: days exist in their month and year, and a 60th second exists only where it is 23:59 in UTC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from grammars.regular.charset import CharSet
from grammars.regular.expressions import Expression, concat, from_machine, union
from grammars.regular.regex.compile import compile_regex

_MULTIPLE_OF_4: Final = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR: Final = f"(?:[0-9]{{2}}{_MULTIPLE_OF_4}|{_MULTIPLE_OF_4}00)"
_DATE: Final = (
    "(?!0000)(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR_MINUTE: Final = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION: Final = r"(?:\.[0-9]{1,12})?"
_TIME: Final = f"{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}(?:[Zz]|[+-]{_HOUR_MINUTE})"
_NUMBER: Final = "[0-9]{1,9}"
_SECONDS: Final = f"{_NUMBER}S"
_MINUTES: Final = f"{_NUMBER}M(?:{_SECONDS})?"
_HOURS: Final = f"{_NUMBER}H(?:{_MINUTES})?"
_CLOCK: Final = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS: Final = f"{_NUMBER}D"
_MONTHS: Final = f"{_NUMBER}M(?:{_DAYS})?"
_YEARS: Final = f"{_NUMBER}Y(?:{_MONTHS})?"
_MINUTES_A_DAY: Final = 24 * 60


def date() -> Expression:
    """``full-date`` from the year 0001."""
    return compile_regex(_DATE)


def time() -> Expression:
    """``full-time``; at most 12 digits of a second's fraction."""
    return union(compile_regex(_TIME), from_machine(_LeapSecond()))


def date_time() -> Expression:
    """``date-time``."""
    return concat(date(), compile_regex("[Tt]"), time())


def duration() -> Expression:
    """``duration``; at most 9 digits a number."""
    return compile_regex(f"P(?:(?:{_DAYS}|{_MONTHS}|{_YEARS})(?:{_CLOCK})?|{_CLOCK}|{_NUMBER}W)")


@dataclass(frozen=True, slots=True)
class _LeapSecond:
    """``HH:MM:60``, a fraction, and an offset by which it is 23:59 in UTC.

    States: the text of the local time so far; then (its minute of the day, digits of the fraction or -1 where there is
    none); then the text that is left.
    """

    def start(self) -> Hashable | None:
        return ""

    def classes(self) -> Iterable[CharSet]:
        return (*map(CharSet.of, "0123456789:.+-"), CharSet.of("Zz"), CharSet.span("0", "9"))

    def arcs(self, state: Hashable) -> Iterable[tuple[CharSet, Hashable]]:
        if isinstance(state, str):
            return self._local(state)
        assert isinstance(state, tuple)
        return [(CharSet.of(state[0][0]), (state[0][1:],))] if len(state) == 1 and state[0] else self._after(*state)

    def accepts(self, state: Hashable) -> bool:
        return state == ("",)

    def shortest(self, state: Hashable) -> int:
        if isinstance(state, str):
            return 9 - len(state)
        assert isinstance(state, tuple)
        return len(state[0]) if len(state) == 1 else 1

    def identity(self) -> str:
        return "leap-second"

    def _local(self, text: str) -> Iterable[tuple[CharSet, Hashable]]:
        place = len(text)
        if place == 8:
            yield from self._after(int(text[:2]) * 60 + int(text[3:5]), -1)
            return
        allowed = {0: "012", 1: "0123" if text == "2" else "0123456789", 3: "012345", 4: "0123456789", 6: "6", 7: "0"}
        for character in allowed.get(place, ":"):
            yield CharSet.of(character), text + character

    def _after(self, *state: int) -> Iterable[tuple[CharSet, Hashable]]:
        if len(state) < 2:
            return
        minute, digits = state
        if digits < 0:
            yield CharSet.of("."), (minute, 0)
        elif digits < 12:
            yield CharSet.span("0", "9"), (minute, digits + 1)
        if digits:
            ahead = (minute + 1) % _MINUTES_A_DAY
            if ahead == 0:
                yield CharSet.of("Zz"), ("",)
            yield CharSet.of("+"), (_clock(ahead),)
            yield CharSet.of("-"), (_clock(-ahead % _MINUTES_A_DAY),)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
