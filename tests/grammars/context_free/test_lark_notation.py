from __future__ import annotations

import itertools
import random

import pytest
from lark import Lark
from lark.exceptions import LarkError

from decoding.errors import ConstraintError
from decoding.masks import unpack
from grammars.constraint import Notation
from grammars.context_free.lark_notation import MAX_NESTING, read_lark
from grammars.vocabulary import Vocabulary

JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER -> number | "true" -> true | "false" -> false | "null" -> null
array : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : string ":" value
string : ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""
CODE = r"""
start: statement+
statement: "if" sum ":" NAME | NAME "=" sum ";"
sum: sum "+" term | term
term: NAME | NUMBER | "(" sum ")" | NAME "(" _list{sum, ","} ")"
_list{item, separator}: item (separator item)*
IF.2: "if"
NAME: /[a-z_]\w*/
NUMBER: /\d+/
COMMENT: /#[^\n]*/
%ignore COMMENT
%ignore /[ \n]+/
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (JSON, ['{"a" : [1, true,\n{}], "b":"\\u00e9\\n"}', "-1.5e3", '"a\\"b"'], ["{'a':1}", '{"a":1', "", '"a"b"']),
        (CODE, ["a=1;", "if x+(1) : y", "iffy=f(a,b+1); # x", "a=1;b=2;"], ["if=1;", "a=;", "a=1", "x y=2;"]),
        ('start: "a"i B\nB: "x".."z"', ["ax", "Az"], ["aw", "bx"]),
        ('start: A~2 B~1..3 [C] D?\nA: "a"\nB: "b"\nC: "c"\nD: "d"', ["aab", "aabbbcd"], ["ab", "aabbbb"]),
        ('start: A | start A\nA: "a" B*\nB: /[0-9]/', ["a", "aa12a"], ["", "1"]),
        ('start: C "x"\nC: "/*" /.*?/s "*/"', ["/* a */x", "/**/x"], ["/**/", "/* */ */x"]),
        ('start: W " " W\nW: /[a-z]+\\b/', ["ab c"], ["ab", "abc"]),
        ("start: A\nA: /(?<!b)a+/ | /x(?=yz)yz/", ["aa", "xyz"], ["x", "ba"]),
        ('start: K N\nK: "for" | "if"\nN: /[a-z]+/', ["forx", "forif"], ["for", "x"]),
    ],
)
def test_texts_of_a_grammar(grammar_of, accepts, grammar, good, bad):
    compiled = grammar_of(grammar, Notation.LARK)
    assert [text for text in (*good, *bad) if accepts(compiled, text)] == good


def test_priorities_part_what_equal_ones_share(grammar_of, accepts):
    grammar = 'start: "=" KEYWORD | NAME\nKEYWORD{}: "if" | "for"\nNAME: /[a-z]+/'
    assert accepts(grammar_of(grammar.format(""), Notation.LARK), "if") is True
    assert accepts(grammar_of(grammar.format(".1"), Notation.LARK), "if") is False
    assert accepts(grammar_of(grammar.format(".1"), Notation.LARK), "iff") is True


def test_templates_imports_and_ignored_terminals(grammar_of, accepts):
    grammar = """
        start: _list{pair} | _list{CNAME}
        pair: CNAME "=" INT
        _list{x}: "[" x ("," x)* "]"
        %import common (CNAME, INT)
        %import common.WS_INLINE -> SPACE
        %ignore SPACE
    """
    compiled = grammar_of(grammar, Notation.LARK)
    for text in ("[a=1,b=22]", " [ a = 1 , b=2 ] ", "[a,b_1]"):
        assert accepts(compiled, text)
    for text in ("[a=1,b]", "[a b]", "[1]", "[]"):
        assert not accepts(compiled, text)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: foo", "'foo' used but not defined .in rule start"),
        ("start: FOO", "'FOO' used but not defined"),
        ("start: FOO\n%declare FOO", "terminal FOO, but does not define it"),
        ('begin: "a"', "no rule 'start' to start from; its rules are 'begin'"),
        ("", "is empty"),
        ("// no rule", "no rule 'start' to start from; it has no rules"),
        ('start: K N | N\nK: "for" | "if"\nN: /[a-z]+/', "can never put N after K"),
        ('start: start "a"', r"never ends in the rule 'start' \(line 1\)"),
        ('start: "a" | b\nb: "(" c ")"\nc: b', r"never ends in the rule 'b' \(line 2\), nor in 'c'"),
        ("start: (", "Unclosed parenthesis, at line 1"),
        ('start: "a"\nb: )', "line 2"),
        ("start: A\nA: B\nB: A", "Recursion in terminal"),
        ("start: A\nA: start", "Rules aren't allowed inside terminals"),
        ("start: A\nA: /a*/", "terminal A: matches the empty text"),
        ("start: A\nA: /(?<=b)a/", "terminal A: matches no text"),
        ("start: A\nA: /(a)\\1/", "terminal A: .*back-reference"),
        ("start: A\nA: /(/", r"missing \)"),
        ('start: A "b"\nA: /[a-z]+/', 'can never put "b" after A'),
        ("start: NAME NAME\nNAME: /[a-z]+/", "can never put NAME after NAME"),
        ('start: C X\nC: /#.*/\nX: "x"', 'can never put "x" after C'),
        ("%import python.NAME\nstart: NAME", r"more than terminals of common \(line 1\)"),
        ('start: "a"\n  %import .secret.NAME', r"more than terminals of common \(line 2\)"),
        ('start: "a"\n%importsecret.NAME', "more than terminals of common"),
        ("start: " + "(" * 30_000 + '"a"' + ")" * 30_000, f"more than {MAX_NESTING} deep .line 1"),
        ('start: "a"~3..2', "Bad Range"),
        ("start: t{A}\nt{x, y}: x y\nA: /a/", "template arguments"),
        ("start: A\nA.1: /[ab]/\nB.2: /[a-c]/\nb: B", None),
        ("start: A | B\nA.1: /[ab]/\nB.2: /[a-c]/", "terminal A: matches no text, or none"),
    ],
)
def test_what_is_wrong_is_told(grammar_of, grammar, message):
    if message is None:  # a terminal that no rule uses takes nothing away
        grammar_of(grammar, Notation.LARK)
        return
    with pytest.raises(ConstraintError, match=message) as caught:
        grammar_of(grammar, Notation.LARK)
    assert caught.value.field == "constraint.grammar"
    assert len(str(caught.value)) < 400


def test_lark_reads_no_file(tmp_path, monkeypatch):
    """Not even one that an import names outright."""
    (tmp_path / "common.lark").write_text("WS: /secret/")
    monkeypatch.chdir(tmp_path)
    syntax = read_lark("start: WS\n%import common.WS").syntax
    assert "secret" not in str(syntax)


TINY = {
    "calls": 'start: N "(" [start ("," start)*] ")" | N\nN: "a" | "b"',
    "ignored": 'start: "a" start "b" | "c"\n%ignore " "',
    "ambiguous": 'start: start start | "a" | "ab"',
    "nullable": 'start: x x "c"\nx: | "a" | "b" x',
    "left and right": 'start: start "+" start | "-" start | "a"',
}


@pytest.mark.parametrize("grammar", TINY.values(), ids=TINY)
def test_masks_equal_what_larks_earley_parser_can_complete(grammar_of, grammar):
    """Every row against listing: a token is legal where some listed text goes on with it."""
    letters = sorted(set("abc()+- ,").intersection(grammar.replace("start", "").replace("ignore", "")))
    parser = Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="resolve")
    longest = 6 if len(letters) < 5 else 5
    listed = {
        "".join(text)
        for length in range(longest + 1)
        for text in itertools.product(letters, repeat=length)
        if parses(parser, "".join(text))
    }
    pieces = [*letters, *map("".join, itertools.product(letters, repeat=2))]
    eos = len(pieces)
    vocabulary = Vocabulary(
        tokens=(*(piece.encode() for piece in pieces), b""), special_ids=frozenset({eos}), eos_ids=(eos,), size=eos + 1
    )
    matcher = grammar_of(grammar, Notation.LARK, over=vocabulary).matcher()
    begun = {text[:end] for text in listed for end in range(len(text) + 1)}

    def visit(prefix: str) -> None:
        legal = set(unpack(matcher.mask().bits_W, vocabulary.size).nonzero()[0].tolist())
        assert (eos in legal) == matcher.is_accepting == (prefix in listed)
        for token, piece in enumerate(pieces):
            if prefix + piece in begun:
                assert token in legal, (prefix, piece)
            if token in legal:
                assert prefix + piece in begun or len(prefix + piece) > longest - 4, (prefix, piece)
            if token in legal and len(prefix + piece) <= 2:
                matcher.advance(token)
                visit(prefix + piece)
                matcher.rollback(1)

    visit("")
    assert listed


def parses(parser: Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except LarkError:
        return False
    return True


@pytest.mark.parametrize("seed", range(8))
def test_random_walks_parse(grammar_of, vocabulary, seed):
    draw = random.Random(seed)
    matcher = grammar_of(JSON, Notation.LARK).matcher()
    tokens: list[int] = []
    while not matcher.is_finished:
        legal = unpack(matcher.mask().bits_W, vocabulary.size).nonzero()[0].tolist()
        ends = [token for token in legal if token in vocabulary.eos_ids]
        closing = [token for token in legal if vocabulary.tokens[token] in (b'"', b"]", b"}", b"1", b":")]
        token = draw.choice(ends or (closing if len(tokens) > 20 and closing else legal))
        matcher.advance(token)
        tokens.append(token)
        assert len(tokens) < 500
    Lark(JSON, parser="earley").parse(vocabulary.join(tokens).decode())
