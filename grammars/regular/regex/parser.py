"""The grammar that the dialects share: alternatives, quantifiers, groups, classes.

The parser keeps open groups on a stack of its own, so that nesting is bounded by a limit and never by the interpreter's
recursion. Invariant: every part of a pattern is an expression as soon as it is read; there is no second tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from grammars.regular import expressions as e
from grammars.regular.charset import ANY, CharSet
from grammars.regular.limits import RegularLimits
from grammars.regular.nodes import Chars, Text
from grammars.regular.regex import assertions
from grammars.regular.regex.dialect import Dialect, Flags
from grammars.regular.regex.source import DIGITS, Source


@dataclass(slots=True, kw_only=True)
class _Group:
    """An open group: the alternatives so far and the items of the one being read."""

    close: Callable[[e.Expression], e.Expression]
    flags: Flags
    """In force outside, to be restored after the group."""
    branches: list[e.Expression] = field(default_factory=list)
    items: list[e.Expression] = field(default_factory=list)
    repeatable: bool = False
    """The last item may take a quantifier."""
    in_look_behind: bool = False


class Parser:
    """Reads one pattern."""

    def __init__(self, source: Source, dialect: Dialect, flags: Flags, limits: RegularLimits) -> None:
        self._source = source
        self._dialect = dialect
        self._flags = flags
        self._limits = limits
        self._groups = [_Group(close=_itself, flags=flags)]

    def parse(self) -> e.Expression:
        """The whole pattern."""
        source = self._source
        while not source.at_end:
            self._item(source.take())
        if len(self._groups) > 1:
            source.fail("a closing parenthesis is missing")
        return self._closed(self._groups.pop())

    def _item(self, character: str) -> None:
        group = self._groups[-1]
        if self._flags.x and self._skip_comment(character):
            return
        if character == "|":
            group.branches.append(_sequence(group.items))
            group.items = []
            group.repeatable = False
        elif character == "(":
            self._open()
        elif character == ")":
            self._close()
        elif character in "*+?" or character == "{":
            self._quantify(character)
        else:
            atom = self._atom(character)
            self._add(atom, repeatable=isinstance(atom, (Text, Chars)))

    def _atom(self, character: str) -> e.Expression:
        flags = self._flags
        if character == ".":
            return e.chars(ANY if flags.s else ~self._dialect.line_terminators)
        if character == "^":
            return assertions.line_start(self._dialect.line_terminators) if flags.m else assertions.START
        if character == "$":
            return assertions.line_end(self._dialect.line_terminators) if flags.m else self._dialect.end
        if character == "[":
            return e.chars(self._class())
        if character == "\\":
            item = self._dialect.escape(self._source, flags, in_class=False)
            return self._characters(item) if isinstance(item, CharSet) else item
        return self._characters(CharSet.of(character))

    def _characters(self, charset: CharSet) -> e.Expression:
        charset = self._dialect.fold(charset, self._flags) if self._flags.i else charset
        single = len(charset.bounds) == 2 and charset.bounds[1] - charset.bounds[0] == 1
        return e.literal(chr(charset.bounds[0])) if single else e.chars(charset)

    def _add(self, item: e.Expression, *, repeatable: bool = True) -> None:
        group = self._groups[-1]
        group.items.append(item)
        group.repeatable = repeatable

    def _skip_comment(self, character: str) -> bool:
        if character == "#":
            end = self._source.text.find("\n", self._source.position)
            self._source.position = len(self._source.text) if end < 0 else end + 1
        return character == "#" or character in " \t\n\r\f\v"

    # Quantifiers

    def _quantify(self, character: str) -> None:
        counts = self._counts() if character == "{" else {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        if counts is None:
            self._add(self._characters(CharSet.of("{")))
            return
        source, group = self._source, self._groups[-1]
        if not group.repeatable:
            source.fail(f"nothing that {character!r} could repeat")
        if self._dialect.possessive and source.skip("+"):
            source.unsupported("possessive quantifiers are not supported")
        source.skip("?")  # lazy: the same language
        least, most = counts
        if most is not None and most < least:
            source.fail(f"the counts {least} and {most} are in the wrong order")
        if max(least, most or 0) > self._limits.max_repeat:
            source.fail(f"a count above {self._limits.max_repeat}")
        group.items.append(e.repeat(group.items.pop(), least, most))
        group.repeatable = False

    def _counts(self) -> tuple[int, int | None] | None:
        """What stands in braces, or None (and nothing read) where it is no quantifier."""
        source = self._source
        start = source.position
        low = source.run(DIGITS, 20)
        comma = source.skip(",")
        high = source.run(DIGITS, 20) if comma else low
        well_formed = low or (comma and self._dialect.open_lower_count)
        if not well_formed or not source.skip("}"):
            source.position = start
            return None
        return int(low or "0"), int(high) if high else None

    # Groups

    def _open(self) -> None:
        source = self._source
        if len(self._groups) > self._limits.max_nesting:
            source.fail(f"groups are nested more than {self._limits.max_nesting} deep")
        close = self._special() if source.skip("?") else _itself
        if close is not None:
            behind = self._groups[-1].in_look_behind or close in (_look_behind, _not_look_behind)
            self._groups.append(_Group(close=close, flags=self._flags, in_look_behind=behind))

    def _special(self) -> Callable[[e.Expression], e.Expression] | None:
        """What follows ``(?``: how the group closes, or None where no group was opened."""
        source = self._source
        for prefix, close in _PREFIXES.items():
            if source.skip(prefix):
                if close in (_look_ahead, _not_look_ahead) and self._groups[-1].in_look_behind:
                    source.unsupported("a look-ahead inside a look-behind is not supported")
                return close
        if source.skip("P=") or source.skip("("):
            source.unsupported("back-references and conditional groups are not regular")
        if source.skip(">"):
            source.unsupported("atomic groups are not supported")
        if source.skip("P<") or source.skip("<"):
            name = source.until(">")
            if not name.isidentifier():
                source.fail(f"bad group name {name!r}")
            return _itself
        if source.skip("#"):
            source.until(")")
            return None
        return self._inline_flags()

    def _inline_flags(self) -> Callable[[e.Expression], e.Expression] | None:
        source = self._source
        at_start = source.position == 2
        letters = self._dialect.letters
        on = source.run(letters, len(letters))
        off = source.run("imsx", 4) if source.skip("-") else ""
        flags = self._flags.changed(on=on, off=off)
        if at_start and on and not off and source.skip(")"):
            self._flags = self._groups[0].flags = flags
            return None
        if not (on or off) or not source.skip(":"):
            source.fail("unknown kind of group, or flags that do not stand at the start")
        outer, self._flags = self._flags, flags
        self._groups.append(_Group(close=_itself, flags=outer, in_look_behind=self._groups[-1].in_look_behind))
        return None

    def _close(self) -> None:
        if len(self._groups) == 1:
            self._source.fail("a parenthesis is closed that was not opened")
        group = self._groups.pop()
        self._flags = group.flags
        self._add(self._closed(group))

    def _closed(self, group: _Group) -> e.Expression:
        branches = [*group.branches, _sequence(group.items)]
        return group.close(e.union(*branches))

    # Classes

    def _class(self) -> CharSet:
        source, dialect = self._source, self._dialect
        negated = source.skip("^")
        found: list[CharSet] = []
        first = True
        while source.peek() != "]" or (first and not dialect.empty_class):
            first = False
            low = self._member()
            if source.peek() == "-" and source.peek(2) not in ("-]", "-"):
                source.take()
                found.append(self._range(low, self._member()))
            else:
                found.append(low)
        source.take()
        charset = CharSet.from_ranges(r for member in found for r in member.ranges())
        if self._flags.i:
            charset = dialect.fold(charset, self._flags)
        return ~charset if negated else charset

    def _member(self) -> CharSet:
        character = self._source.take()
        if character != "\\":
            return CharSet.of(character)
        item = self._dialect.escape(self._source, self._flags, in_class=True)
        assert isinstance(item, CharSet)
        return item

    def _range(self, low: CharSet, high: CharSet) -> CharSet:
        source = self._source
        if len(low) == len(high) == 1:
            if low.bounds[0] > high.bounds[0]:
                source.fail("a range of a class whose ends are in the wrong order")
            return CharSet.from_ranges([(low.bounds[0], high.bounds[0])])
        if not self._dialect.class_in_range:
            source.fail("a range of a class with a class as its end")
        return low | high | CharSet.of("-")


def _sequence(items: list[e.Expression]) -> e.Expression:
    """Concatenation, with runs of single characters joined to one literal."""
    joined: list[e.Expression] = []
    run: list[str] = []
    for item in items:
        if isinstance(item, Text):
            run.append(item.text)
            continue
        if run:
            joined.append(e.literal("".join(run)))
            run = []
        joined.append(item)
    if run:
        joined.append(e.literal("".join(run)))
    return e.concat(*joined)


def _itself(body: e.Expression) -> e.Expression:
    return body


def _look_ahead(body: e.Expression) -> e.Expression:
    return e.look_ahead(body)


def _not_look_ahead(body: e.Expression) -> e.Expression:
    return e.look_ahead(body, negative=True)


def _look_behind(body: e.Expression) -> e.Expression:
    return e.look_behind(body)


def _not_look_behind(body: e.Expression) -> e.Expression:
    return e.look_behind(body, negative=True)


_PREFIXES = {
    ":": _itself,
    "=": _look_ahead,
    "!": _not_look_ahead,
    "<=": _look_behind,
    "<!": _not_look_behind,
}
