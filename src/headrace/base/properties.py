"""Java's properties files, by the rules of `java.util.Properties.load`; `kafka-*.sh` take settings in this form.

Lines end with LF, CR or CRLF. Blank is a space, a tab or a form feed, and nothing else. `#` and `!` begin comment
lines. A backslash at the end of a line joins the next line without its leading blanks. The first `=`, `:` or blank
ends a key. A value keeps its trailing blanks. The last of two equal keys wins.
"""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^=: \t\f\\])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; ValueError for a `\\u` without four hexadecimal digits."""
    values = {}
    for line in _logical_lines(text):
        found = _KEY_AND_VALUE.match(line)
        assert found is not None  # every part of the pattern may be empty
        values[_unescape(found[1])] = _unescape(found[2])
    return values


def _logical_lines(text: str) -> Iterator[str]:
    joined = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANK)
        if not joined and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_replaced, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins surrogate pairs


def _replaced(escape: re.Match[str]) -> str:
    code, character = escape.groups()
    if code:
        return chr(int(code, 16))
    if character == "u":
        raise ValueError(f"malformed \\uXXXX escape in {escape.string!r}: expected four hexadecimal digits")
    return _ESCAPES.get(character, character)
