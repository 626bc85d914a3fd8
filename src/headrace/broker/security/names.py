"""Who a client's certificate says it is: the subject's name as Java writes it, and `ssl.principal.mapping.rules`."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Those of RFC 2253. All other attributes are written by number, with their encoded value."""
_TEXTS = frozenset({12, 19, 20, 22, 27, 30})
"""Types of text. Java reads the bytes of all of them as UTF-8."""
_VERSION = 0xA0
_SUBJECT = 4
"""The place of the subject in a certificate, behind its optional version."""
_SPECIAL = re.compile(r"[,=+<>#;\"\\\x00]|^[ \r]+|[ \r]+\Z")
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,\s*|$)"
)

_NAMED_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
_REFERENCE = re.compile(r"\\(.)|\$(\d)|\$\{([A-Za-z][A-Za-z0-9]*)\}")
"""What stands for something else in a replacement: an escaped character, a group's number, a group's name."""


class DerValue(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes


def _values(der: bytes) -> Iterator[DerValue]:
    position = 0
    while position < len(der):
        start, tag, length = position, der[position], der[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[position : position + size], "big")
            position += size
        end = position + length
        yield DerValue(tag, der[position:end], der[start:end])
        position = end


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER) in the form of RFC 2253, as Java's X500Principal.getName() gives it."""
    [whole] = _values(certificate)
    signed = next(_values(whole.content))
    fields = [field for field in _values(signed.content) if field.tag != _VERSION]
    parts = []
    for relative in _values(fields[_SUBJECT].content):
        pairs = [tuple(_values(pair.content)) for pair in _values(relative.content)]
        parts.append("+".join(_attribute(kind, value) for kind, value in pairs))
    return ",".join(reversed(parts))


def _attribute(kind: DerValue, value: DerValue) -> str:
    number = _dotted(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_SPECIAL.sub(_escaped, value.content.decode(errors='replace'))}"


def _escaped(found: re.Match[str]) -> str:
    """With a backslash before each character: what is in a value must not look like another part of the name."""
    return "".join("\\00" if sign == "\0" else "\\" + sign for sign in found[0])


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in [first, numbers[0] - 40 * first, *numbers[1:]])


Rule = Callable[[str], str | None]


def parse_mapping_rules(text: str) -> list[Rule]:
    """`RULE:pattern/replacement/[LU]` and `DEFAULT`, with commas; ValueError for anything else."""
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(
                f"{text[position:]!r} is not a rule; expected DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]"
            )
        rules.append(_keep if found["default"] else _rule(found))
        position = found.end()
    return rules


def _keep(name: str) -> str:
    return name


def _rule(found: re.Match[str]) -> Rule:
    """As in Java, classes such as word characters are ASCII, and (?<name>...) names a group."""
    text = found["pattern"].strip()
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", text), re.ASCII)
    except re.error as error:
        raise ValueError(f"{text!r} is not a pattern: {error}") from None
    parts = _REFERENCE.split(found["replacement"])
    for name in parts[3::4]:
        if name is not None and name not in pattern.groupindex:
            raise ValueError(f"{text!r} is not a pattern with a group named {name}, which the rule refers to")
    case = found["case"]

    def apply(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        short = pattern.sub(lambda matched: _replaced(matched, parts), name)
        return short.lower() if case == "L" else short.upper() if case == "U" else short

    return apply


def _replaced(matched: re.Match[str], parts: list[str | None]) -> str:
    """The replacement of a match, from what `_REFERENCE` has split. A group that does not exist is meant as it is."""
    text = parts[0] or ""
    for literal, number, name, rest in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
        if literal is not None:
            text += literal
        elif number is not None:
            text += (matched[int(number)] or "") if int(number) <= matched.re.groups else f"${number}"
        elif name is not None:
            text += matched[name] or ""
        text += rest or ""
    return text


def map_name(rules: list[Rule], name: str) -> str | None:
    """What the first rule that fits makes of a name; None where none fits."""
    return next((mapped for rule in rules if (mapped := rule(name)) is not None), None)
