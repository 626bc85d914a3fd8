"""JSON laid out for people without changing what it says: numbers as they are written, names that are given twice.

`json.loads` and `json.dumps` would show 19.999999999999999999 as 20.0, and 1e400 as Infinity. Characters that cannot
be shown (half of a surrogate pair, marks that reverse a line) stay escapes.
"""

import json
import re
from typing import Any

from headrace.base.text import printable_json

INDENT = "  "
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Literal(str):
    """A number, as it is written."""


class _Members(list[tuple[str, Any]]):
    """An object, in order."""


def lay_out(text: str) -> str:
    """ValueError if it is no JSON, RecursionError if it is nested too deeply."""
    parsed = json.loads(
        text, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal, object_pairs_hook=_Members
    )
    return _laid_out(parsed, "\n")


def _laid_out(node: Any, end: str) -> str:
    inner = end + INDENT
    match node:
        case _Literal():
            return node
        case str():
            return _string(node)
        case _Members() if node:
            parts = (f"{_string(name)}: {_laid_out(value, inner)}" for name, value in node)
            return "{" + inner + f",{inner}".join(parts) + end + "}"
        case _Members():
            return "{}"
        case list() if node:
            return "[" + inner + f",{inner}".join(_laid_out(value, inner) for value in node) + end + "]"
    return json.dumps(node)


def _string(text: str) -> str:
    shown = printable_json(json.dumps(text, ensure_ascii=False))
    return json.dumps(text) if _SURROGATE.search(shown) else shown
