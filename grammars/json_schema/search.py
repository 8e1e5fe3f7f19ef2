"""Least fixed points by depth-first search without recursion.

A question ("is there a value that meets this goal?") is answered by a generator that yields further questions and
returns a bool. A question that depends on itself is answered no at that place: a value cannot contain itself.

Invariant: an answer is remembered only where it does not rest on such a provisional no.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import TypeVar

from decoding.errors import UnsupportedConstraintError

ResultT = TypeVar("ResultT")
Question = Hashable
Answering = Generator[Question, bool, ResultT]

MAX_QUESTIONS = 200_000


class _Frame:
    __slots__ = ("answering", "low", "question")

    def __init__(self, question: Question, answering: Answering[object]) -> None:
        self.question = question
        self.answering = answering
        self.low = 1 << 60  # the outermost open question that the answer rests on, by its place on the stack


class Search:
    """Answers questions, and remembers the answers."""

    def __init__(self, answer: Callable[[Question], Answering[bool]]) -> None:
        self._answer = answer
        self._known: dict[Question, bool] = {}
        self._asked = 0

    def run(self, task: Answering[ResultT]) -> ResultT:
        """Drive ``task`` to its end, answering what it yields."""
        stack = [_Frame(None, task)]
        places: dict[Question, int] = {}
        reply: bool | None = None
        while True:
            frame = stack[-1]
            try:
                question = frame.answering.send(reply)  # type: ignore[arg-type]
            except StopIteration as stop:
                stack.pop()
                if not stack:
                    return stop.value  # type: ignore[no-any-return]
                reply = bool(stop.value)
                place = places.pop(frame.question)
                if reply or frame.low >= place:
                    self._known[frame.question] = reply
                else:
                    stack[-1].low = min(stack[-1].low, frame.low)
                continue
            if question in self._known:
                reply = self._known[question]
            elif question in places:
                frame.low = min(frame.low, places[question])
                reply = False
            else:
                self._count()
                places[question] = len(stack)
                stack.append(_Frame(question, self._answer(question)))
                reply = None

    def _count(self) -> None:
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            raise UnsupportedConstraintError(
                "constraint.json_schema",
                f"needs more than {MAX_QUESTIONS} steps to tell what can be completed; simplify",
            )
