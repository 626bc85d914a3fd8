"""Text from elsewhere, made safe to print.

Any client may choose a group id with terminal control sequences in it, a newline that breaks a table, or marks that
reverse the rest of the line. They are shown as escapes.
"""

import re

_UNSAFE = "\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_UNSAFE}]")
_CONTROL_IN_LINES = re.compile(f"(?!\n|\t)[{_UNSAFE}]")


def printable(text: str) -> str:
    r"""One line: control characters and marks of direction as `\x1b`, `\n`, `\u202e`."""
    return _CONTROL.sub(_escape, text)


def printable_lines(text: str) -> str:
    """As `printable`, but lines stay lines, and tabs stay tabs."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def printable_json(document: str) -> str:
    r"""A JSON text, whose encoder has escaped most of them already; the rest as `\u009b`."""
    return _CONTROL_IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _escape(found: "re.Match[str]") -> str:
    return found[0].encode("unicode_escape").decode()
