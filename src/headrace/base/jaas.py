"""JAAS lines, as Java's clients and brokers are given logins: `MODULE required NAME="VALUE" ...;`."""

import re
from typing import NamedTuple

_LOGIN = re.compile(
    r"^\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*$", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(
    r"\s*([\w.\-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)


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
        options[name] = bare or re.sub(r"\\(.)", r"\1", double or single or "")
        position = option.end()
    return JaasLogin(found[1].rpartition(".")[2], options)
