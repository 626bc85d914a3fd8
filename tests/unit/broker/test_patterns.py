"""Patterns from clients: what they match, what is refused, and that none can be made slow. Oracle: Python's `re`."""

import random
import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.broker.patterns import Pattern
from headrace.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("a*", ["", "aaa"], ["b"]),
        ("a+?b", ["ab", "aab"], ["b"]),
        ("a?b", ["b", "ab"], ["aab"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("(ab){1,2}", ["ab", "abab"], ["", "ababab"]),
        ("x{", ["x{"], ["x"]),
        ("a.c", ["abc", "a.c"], ["a\nc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        ("[a-c]+", ["abc"], ["abd"]),
        ("[^a-c]", ["d"], ["a"]),
        ("[]a]+", ["]a"], ["b"]),
        (r"[\]\\]", ["]", "\\"], ["["]),
        ("[[:digit:]x]+", ["1x2"], ["a"]),
        (r"\d+\.\w*", ["12.a_1"], ["1a"]),
        (r"\x41\x{42}", ["AB"], ["ab"]),
        (r"\Qa.b*\E+", ["a.b*"], ["axb"]),
        ("^a$", ["a"], ["b"]),
        (r"\bword\b", ["word"], ["words"]),
        ("(?:a|b)(?P<name>c)(?<other>d)", ["acd", "bcd"], ["cd"]),
        ("(?i)straSSe", ["STRASSE"], ["strase"]),
        ("a(?i:b)c", ["aBc", "abc"], ["ABC"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("grün.*", ["grünlich"], ["grun"]),
    ],
)
def test_the_whole_text_must_match(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in yes if not compiled.matches(text)] == []
    assert [text for text in no if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)b",
        "[",
        "[a",
        "*",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        "\\",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        r"\p{Greek}",
        "[z-a]",
        "(?x)a",
        "(" * 101 + ")" * 101,
        "((a{1000}){1000}){1000}",
        "a" * 5000,
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as caught:
        Pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)[^a]"]
)
def test_no_pattern_takes_more_than_a_moment(pattern: str) -> None:
    compiled = Pattern(pattern)
    started = time.process_time()
    assert not compiled.matches("a" * 2000)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "pattern", ["(a?){1000}", "(.{0,1000}){9}", "((a?){100}){19}", "(x?a?){900}x", "((a?){1000})?" * 6]
)
def test_a_pattern_that_takes_too_many_steps_is_refused(pattern: str) -> None:
    compiled = Pattern(pattern)
    for _ in range(3):
        with pytest.raises(KafkaError, match="too many steps") as caught:
            compiled.matches("a" * 249)
        assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern",
    [r"(?i)orders-\w{1,200}-v[0-9]+", "(?:orders|bills|[a-z]+)-.*", r".*\b(eu|us)\b.*", "[^_].{0,200}"],
)
def test_an_ordinary_pattern_may_look_at_many_names(pattern: str) -> None:
    draw = random.Random(1)
    compiled, expected = Pattern(pattern), re.compile(pattern, re.ASCII)
    names = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyzORDES0123456789.-_", k=60)) for _ in range(2000)]
    names += [f"orders-{name}-v1" for name in names[:500]] + [f"a.eu-{name}" for name in names[:500]]
    assert [name for name in names if compiled.matches(name)] == [
        name for name in names if expected.fullmatch(name)
    ]


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "", r"\w", "^", "$"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda text: f"({text}){{1,2}}"),
    ),
    max_leaves=8,
)


@given(patterns, st.text("abc", max_size=6))
def test_it_agrees_with_pythons_own_matcher(pattern: str, text: str) -> None:
    try:
        expected = re.compile(pattern)
    except re.error:
        assume(False)
    assert Pattern(pattern).matches(text) == (expected.fullmatch(text) is not None)
