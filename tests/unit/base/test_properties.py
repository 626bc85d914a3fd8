"""Properties files are read by the rules of `java.util.Properties.load`."""

import pytest

from headrace.base.properties import parse_properties

TABLE = [
    # separators
    ("a=1\nb:2\nc 3\nd = 4\ne\t5\ng\f6", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "g": "6"}),
    ("a=x=y:z", {"a": "x=y:z"}),
    ("a = = b", {"a": "= b"}),
    ("a : = b", {"a": "= b"}),
    ("a=\nb", {"a": "", "b": ""}),
    ("=x", {"": "x"}),
    (" : x", {"": "x"}),
    ("a=1\na=2", {"a": "2"}),
    # comments and blank lines
    ("# no\n! no\n\n \t\f\n  a=1\n \t# no\nb=#yes", {"a": "1", "b": "#yes"}),
    ("# no \\\na=1", {"a": "1"}),
    # ends of lines
    ("a=1\r\nb=2\rc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    ("a=caf\u00e9\u0085bar", {"a": "caf\u00e9\u0085bar"}),
    ("a=one\u2028two\x0bthree\x1cfour", {"a": "one\u2028two\x0bthree\x1cfour"}),
    ("a=one\ftwo", {"a": "one\ftwo"}),
    ("a\u00a0b=1", {"a\u00a0b": "1"}),
    # blanks
    ("a= one  ", {"a": "one  "}),
    ("a=one\t\f", {"a": "one\t\f"}),
    ("a=\u3000one", {"a": "\u3000one"}),
    # joined lines
    ("a=one \\\n   two", {"a": "one two"}),
    ("a=1,\\\r\n\t2,\\\r 3", {"a": "1,2,3"}),
    ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
    ("a=one\\\n# two", {"a": "one# two"}),
    ("a=one\\\n\nb=2", {"a": "one", "b": "2"}),
    ("a=one \\", {"a": "one "}),
    ("\\\n# no\na=1", {"a": "1"}),
    # escapes
    ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
    ("a=\\u0041\\u00e9\\t\\n\\r\\f\\\\\\x\\=", {"a": "A\u00e9\t\n\r\f\\x="}),
    ("a=\\ one", {"a": " one"}),
    ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    ("a\\\tb=1", {"a\tb": "1"}),
]


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_a_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1"])
def test_a_malformed_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_properties(text)
