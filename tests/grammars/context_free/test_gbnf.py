from __future__ import annotations

import pytest

from decoding.errors import ConstraintError, UnsupportedConstraintError
from grammars.context_free.gbnf import MAX_COUNT, MAX_NESTING, read_gbnf
from grammars.context_free.lexing import without_losses
from grammars.context_free.recursion import repetitions
from grammars.context_free.syntax import Syntax, Terminal, walk
from grammars.regular.automaton import build

LLAMA_JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (
            LLAMA_JSON,
            ['{"a": [1, true,{}], "b":"\\u00e9\\n"}', "{ }\n  "],
            ["[1]", "{'a':1}", '{"a":1', '{"a":01}', ""],
        ),
        ('root ::= "yes" | "no" ws # comment\nws ::= [ \\t]*', ["yes", "no", "no \t"], ["yes ", "nope"]),
        ("root ::= [^a-c\\]x-]", ["d", "\n", "é", "🙂"], ["a", "b", "]", "x", "-", "dd"]),
        ("root ::= .{2} [a-]", ["\n\na", "éé-"], ["aa", "aab"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\"\\\\\\n"', ['Aé😀"\\\n'], ["Aé"]),
        ("root ::= ( [a]\n | [b]\n)+", ["ab", "b"], ["", "c"]),
        ('root ::=\n  "a" |\n  "b"', ["a", "b"], ["ab"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2} "d"?', ["aab", "aabbccd"], ["ab", "aa", "aabccc"]),
        ("root ::= x-1_y\nx-1_y ::= [0-9]", ["7"], ["x"]),
        ('root ::= root "a" | "b"', ["b", "baaa"], ["a", "ab"]),
        ('root ::= "a" (""*)+ b | ("" | "x"?){2}\nb ::= b | "b"', ["ab", "", "x", "xx"], ["a", "xxx"]),
        ('root ::= "(" root ")" root | ""', ["", "()(())"], ["(", "())"]),
        ('root ::= expr\nexpr ::= expr "+" expr | [0-9]', ["1", "1+2+3"], ["+", "1+"]),
        ('root ::= "ab" "cd" | "abc" "e"', ["abcd", "abce"], ["abc", "abcde"]),
        ('root ::= [a-z]+ "b" [a-z]*', ["ab", "abb", "bb"], ["b", "aaa"]),
    ],
)
def test_texts_of_a_grammar(grammar_of, accepts, grammar, good, bad):
    compiled = grammar_of(grammar)
    assert [text for text in (*good, *bad) if accepts(compiled, text)] == good


def test_an_empty_text_is_a_text(grammar_of):
    matcher = grammar_of('root ::= ""').matcher()
    assert matcher.is_accepting
    assert matcher.only_end()


def test_another_start(grammar_of, accepts):
    assert accepts(grammar_of('root ::= "a" b\nb ::= "b"', start="b"), "b")


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule 'root'"),
        ("a ::= [b]", r"no rule 'root' to start from; its rules are 'a'"),
        ('root ::= "a" b\nc ::= d', r"rule 'b' in 'root' \(line 1\)"),
        ('root ::= "a"\n\nc ::= d', r"rule 'd' in 'c' \(line 3\)"),
        ("root ::= root", r"never ends in the rule 'root' \(line 1\)"),
        ('root ::= "a" b | c\nb ::= "b" b\nc ::= "(" c ")" | c b', r"'root' \(line 1\), nor in 'b', 'c'"),
        ('root ::= "a"\nx ::= "b" y\ny ::= x', r"'x' \(line 2\), nor in 'y'"),
        ('root: "a"', r"lacks '::=' after 'root'; is this another notation\? \(line 1\)"),
        ('root ::= "a"\nroot ::= "b"', r"defines the rule 'root' again, which line 1 defines \(line 2\)"),
        ('root ::= ( "a"', r"closing parenthesis \(line 1\)"),
        ('root ::= "a" )', r"unexpected '\)'"),
        ("root ::= 'a'", 'unexpected "\'"'),
        ('root ::= "a', "closing quote"),
        ("root ::= [a", "closing bracket"),
        ("root ::= []", "no character is in"),
        ("root ::= [^\\x00-\\U0010FFFF]", "no character is in"),
        ("root ::= [z-a]", "wrong order"),
        ('root ::= "\\q"', "unknown escape"),
        ('root ::= "\\xg0"', "2 hexadecimal"),
        ('root ::= "\\ud800"', "no Unicode character"),
        ('root ::= "\\U00110000"', "no Unicode character"),
        ("root ::= *", "nothing before"),
        ('root ::= "a"{2,1}', "wrong order"),
        ('root ::= "a"{}', "no count"),
        ('root ::= "a"{99999}', f"above {MAX_COUNT}"),
        ('root ::= "a"' + "*" * 60, "counts after one symbol"),
        ("root ::= \n\n  " + "(" * 30_000 + '"a"' + ")" * 30_000, f"more than {MAX_NESTING} deep .line 3"),
        ('root ::= "a" ' + "[a] " * 2000, "more than 1000 symbols"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(grammar, message):
    with pytest.raises(ConstraintError, match=message) as caught:
        read_gbnf(grammar, max_nodes=1000)
    assert caught.value.field == "constraint.grammar"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("token", ["<think>", "<[1000]>", "!<think>"])
def test_token_literals_are_refused_by_name(token):
    with pytest.raises(UnsupportedConstraintError, match="token in line 1"):
        read_gbnf(f"root ::= {token}", max_nodes=10)


def names(grammar: str) -> set[str]:
    read = read_gbnf(grammar, max_nodes=1000)
    syntax = without_losses(Syntax(rules=repetitions(read.rules), start=read.start))
    return {node.name for body in syntax.rules.values() for node in walk(body) if isinstance(node, Terminal)}


def test_a_string_of_json_is_one_terminal():
    """What makes masks fast: a character at a time they are fifty times slower."""
    syntax = without_losses(read_gbnf(LLAMA_JSON, max_nodes=1000))
    expressions = [n.expression for body in syntax.rules.values() for n in walk(body) if isinstance(n, Terminal)]
    assert any(build(expression).matches(b'"a string" ') for expression in expressions)


def test_what_would_lose_a_reading_is_broken():
    assert names('root ::= [a-z]+ "b"') == {'[a-z] "b"'}
    assert names('root ::= [a-z]+ "b" root "!" | "!"') == {"[a-z]", '"b"', '"!"'}
    assert names('root ::= "ab" root "cd" | "abc"') == {'"ab"', '"cd"', '"abc"'}


def test_recursion_at_one_end_is_repetition(grammar_of, accepts):
    """Levels of right recursion would count against llguidance's limits."""
    right = "root ::= [0-9] root | [ab] root | inner\ninner ::= x inner | [xy]\nx ::= [xyz]"
    assert len(names(right)) == 1
    assert accepts(grammar_of(right), "1a" * 2000 + "zzy")
    left = 'root ::= root "," item | item\nitem ::= "(" item ")" | [a-z]'
    assert accepts(grammar_of(left), ",".join(["((a))"] * 1000))
    both = 'root ::= "a" root "b" | "a" root | "c"'
    assert accepts(grammar_of(both), "aaacb")
    assert not accepts(grammar_of(both), "acbb")


@pytest.mark.parametrize("length", [30, 300])
def test_a_long_chain_of_rules(grammar_of, accepts, length):
    rules = [f'r{number} ::= "a" r{number + 1} | "b"' for number in range(length)]
    compiled = grammar_of("\n".join(["root ::= r0", *rules, f'r{length} ::= "c"']))
    assert accepts(compiled, "a" * (length - 1) + "b")


def test_rules_that_double_each_other_stay_small(grammar_of, accepts):
    """Written out, 2^40 characters; the size of what is joined is bounded."""
    rules = [f"r{number} ::= r{number + 1} r{number + 1}" for number in range(40)]
    compiled = grammar_of("\n".join(['root ::= r0 | "b"', *rules, 'r40 ::= "a"']))
    assert accepts(compiled, "b")
