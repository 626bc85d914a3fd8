"""JAAS lines, as Java's clients and brokers are given logins: `MODULE required NAME="VALUE" ...;`."""

import re
from typing import NamedTuple

_LOGIN = re.compile(
    r"^\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*$", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(
    r"\s*([\w.\-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)

_ESCAPED = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_SIGNS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""What Java's StreamTokenizer reads for a letter behind a backslash; other characters stand for themselves."""


class JaasLogin(NamedTuple):
    module: str
    """The class's name without its package."""
    options: dict[str, str]


def parse_jaas(text: str) -> JaasLogin:
    """ValueError for what is no JAAS line. Its text never has the line itself, which may hold passwords."""
    found = _LOGIN.match(text)
    if found is None:
        raise ValueError("not a JAAS line")
    options, position, rest = {}, 0, found[2].rstrip()
    while position < len(rest):
        option = _OPTION.match(rest, position)
        if option is None:
            raise ValueError(f"not a JAAS line: an option is wrong after {position} characters")
        name, double, single, bare = option.groups()
        options[name] = bare or _ESCAPED.sub(_meant, double or single or "")
        position = option.end()
    return JaasLogin(found[1].rpartition(".")[2], options)


def _meant(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _SIGNS.get(text, text)
