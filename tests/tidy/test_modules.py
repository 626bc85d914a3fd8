"""Every module says what it is for, and a class name means one thing."""

import ast
import re
from collections import Counter

from tests.tidy.tree import GENERATED, modules, name_of, parsed

DUPLICATES = {
    "AcquireMode": 2,
    "AcquiredRange": 2,
    "Backoff": 2,
    "Call": 2,
    "Cause": 2,
    "CommittedOffset": 2,
    "Connection": 2,
    "ConsumerGroup": 2,
    "GroupState": 2,
    "GroupType": 2,
    "Holdings": 2,
    "Limits": 2,
    "Outcome": 2,
    "Partition": 2,
    "Run": 2,
    "Session": 2,
    "ShareGroup": 3,
    "SomeNotSentError": 2,
    "Span": 2,
    "State": 2,
    "Topic": 2,
    "TopicRow": 2,
    "Window": 2,
    "_Waiting": 2,
}
"""Class names in src/ that more than one module uses, and how often. Remove entries; do not add any: choose a name that
is not taken."""

DOCSTRING = re.compile(r'(?:#.*\n|\s*\n)*r?"""\s*\S')


def test_every_module_has_a_docstring() -> None:
    without = [
        name_of(path)
        for path in modules("bench", "deploy", "examples", "src", "tests", "tools")
        if not DOCSTRING.match(path.read_text())
    ]
    assert without == []


def test_no_class_name_is_taken_twice_but_for_those_in_a_list_that_only_shrinks() -> None:
    counted = Counter(
        node.name
        for path in modules("src")
        if GENERATED not in path.parents
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in sorted(counted.items()) if count > 1} == DUPLICATES
