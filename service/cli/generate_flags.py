"""Flags of `espalier generate`.

Invariant: a flag's destination is the name of the client's option, so that what was given goes to the client as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from service.cli.connection_flags import add_connection_flags
from service.cli.structure_flags import add_structure_kinds, add_structure_options, structure_options
from service.client import Formats, Notation, Options, PropertyOrder, RegexDialect, Whitespace
from service.client.constraint import ConstraintOptions

EXIT_CODES = """exit codes:
  0    the text is there, and complete where there is a constraint
  1    the request failed; the server's message is on stderr
  2    the command line could not be understood, or a file could not be read
  3    the text was cut: it is a valid prefix of what the constraint asks for
  130  interrupted; the request was cancelled on the server
  141  whoever read the output went away
"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog="espalier generate",
        description="Send one prompt to a server and print the text as it comes.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_prompt_flags(made)
    add_constraint_flags(made)
    _add_sampling_flags(made)
    _add_speculation_flags(made)
    _add_output_flags(made)
    add_connection_flags(made)
    return made


def client_options(options: argparse.Namespace, error: Callable[[str], Any]) -> Options:
    """Those of the parsed flags that are options of the client; ``error`` ends the program with a message."""
    given = {name: value for name, value in vars(options).items() if name in Options.__annotations__}
    return cast("Options", {**given, "reasoning": None, **structure_options(options, error)})


def constraint_options(options: argparse.Namespace, error: Callable[[str], Any]) -> ConstraintOptions:
    """Those that say what a text must fit, but for the schema; ``error`` as above."""
    given = client_options(options, error)
    names = ConstraintOptions.__annotations__
    return cast("ConstraintOptions", {name: value for name, value in given.items() if name in names})


def _add_prompt_flags(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("prompt", "An argument, --file, or standard input; one trailing line break is cut.")
    group.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt's text")
    group.add_argument("--file", metavar="PATH", help="read the prompt from a file; - is standard input")
    group.add_argument("--chat", dest="as_chat", action="store_true", help="send it as a chat message of the user")
    group.add_argument("--system", metavar="TEXT", help="a system message before it; implies --chat")


def add_constraint_flags(made: argparse.ArgumentParser) -> None:
    """What the text must fit; shared with `espalier explain`."""
    group = made.add_argument_group("constraint")
    kinds = group.add_mutually_exclusive_group()
    kinds.add_argument("--schema", type=_schema, metavar="FILE|JSON", help="JSON text valid under this JSON Schema")
    kinds.add_argument("--regex", metavar="PATTERN", help="text that matches this regular expression in full")
    kinds.add_argument("--choices", type=_comma_separated, metavar="A,B,C", help="one of these texts")
    kinds.add_argument("--choice", action="append", dest="choices", metavar="TEXT", help="one choice; repeatable")
    kinds.add_argument("--json-object", action="store_true", help="any JSON object")
    kinds.add_argument(
        "--grammar",
        type=_grammar,
        metavar="FILE|TEXT",
        help="text that this grammar derives; @json, @arithmetic, @sql and @calls are ready ones",
    )
    add_structure_kinds(kinds)
    add_structure_options(group)
    notations = [notation.value for notation in Notation]
    group.add_argument("--notation", choices=notations, help="how the grammar is written; gbnf unless given")
    group.add_argument("--start", metavar="RULE", help="where texts of the grammar start; root (gbnf) or start (lark)")
    policies = [policy.value for policy in Whitespace]
    group.add_argument("--whitespace", choices=policies, help="white space between JSON tokens; compact unless given")
    orders = [order.value for order in PropertyOrder]
    group.add_argument("--property-order", choices=orders, help="order of an object's keys; schema unless given")
    formats = [policy.value for policy in Formats]
    group.add_argument("--formats", choices=formats, help="what format means in a schema; assert unless given")
    group.add_argument("--integral-floats", action="store_true", help="a schema's integers may be spelled 1.0")
    dialects = [dialect.value for dialect in RegexDialect]
    group.add_argument("--regex-dialect", choices=dialects, help="how --regex is read; python unless given")
    group.add_argument(
        "--best-effort", action="store_true", help="report schema keywords that are not enforced instead of failing"
    )


def _add_sampling_flags(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("sampling", "Off, or the server's default, unless given.")
    group.add_argument("--max-tokens", type=int, metavar="N", help="most tokens to generate")
    group.add_argument("--min-tokens", type=int, metavar="N", help="no end before this many tokens")
    group.add_argument("--temperature", type=float, metavar="T", help="0 takes the most likely token")
    group.add_argument("--top-k", type=int, metavar="K", help="keep the K most likely tokens")
    group.add_argument("--top-p", type=float, metavar="P", help="keep the most likely tokens that reach probability P")
    group.add_argument("--min-p", type=float, metavar="P", help="drop tokens below this share of the most likely one")
    group.add_argument("--repetition-penalty", type=float, metavar="X", help="on tokens of prompt and output; 1 is off")
    group.add_argument("--presence-penalty", type=float, metavar="X", help="on tokens of the output, once")
    group.add_argument("--frequency-penalty", type=float, metavar="X", help="on tokens of the output, per occurrence")
    group.add_argument(
        "--logit-bias", type=_bias, action=_Biases, metavar="ID=BIAS", help="added to the token's logit; repeatable"
    )
    group.add_argument(
        "--bad-word", action="append", dest="bad_words", metavar="TEXT", help="never generated; repeatable"
    )
    group.add_argument("--stop", action="append", metavar="TEXT", help="the text ends before it; repeatable")
    group.add_argument("--seed", type=int, metavar="N", help="equal seeds give equal texts")
    group.add_argument("--logprobs", type=int, metavar="K", help="with --json: log-probabilities, K most likely beside")
    group.add_argument("--ignore-eos", action="store_true", default=None, help="never draw an end-of-sequence token")
    group.add_argument(
        "--finish-within-limit",
        action="store_true",
        default=None,
        help="have a constrained text whole within --max-tokens",
    )
    group.add_argument("-n", type=int, metavar="N", help="number of samples")
    group.add_argument("--priority", type=int, default=0, metavar="P", help="larger runs first; -100 to 100")
    group.add_argument("--tenant", default="", metavar="NAME", help="shares cached prompts with this tenant only")
    group.add_argument("--model", default="", metavar="NAME", help="the server's model unless given")


def _add_speculation_flags(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("speculation", "How fast the text comes, never which text.")
    group.add_argument(
        "--drafter", metavar="NAMES", help="who guesses tokens ahead: AUTO unless given, NONE, or e.g. forced+ngram"
    )
    group.add_argument("--max-draft-tokens", type=int, metavar="N", help="most guesses per step")
    group.add_argument("--tree-width", type=int, metavar="N", help="most guesses for one position")


def _add_output_flags(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("output")
    group.add_argument("--no-stream", action="store_true", help="print the text once it is whole")
    group.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object instead of the text")


def _schema(value: str) -> str:
    """JSON text as it is, or what a file holds; whether it is a JSON Schema is the server's to say."""
    return value if value.lstrip().startswith("{") else _contents(value)


def _grammar(value: str) -> str:
    """The name of a ready grammar as it is, what a file holds, or the text itself, which is never without a colon."""
    if value.startswith("@"):
        return value
    try:
        return _contents(value)
    except argparse.ArgumentTypeError:
        if ":" not in value:
            raise
        return value


def _contents(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error}") from error


def _comma_separated(value: str) -> list[str]:
    return value.split(",")


def _bias(value: str) -> tuple[int, float]:
    token, _, bias = value.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is not ID=BIAS, e.g. 42=-5.5") from error


class _Biases(argparse.Action):
    """Collects ID=BIAS pairs in a dict."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  (argparse's signature)
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002  (the same)
    ) -> None:
        assert isinstance(values, tuple)
        token, bias = values
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), token: bias})
