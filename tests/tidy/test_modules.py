"""Every module says what it is for, and a class name means one thing."""

import ast
import re
from collections import Counter

from tests.tidy.tree import GENERATED, modules, name_of, parsed

ONE_EACH = {"HeadraceBroker"}
"""What users of different frameworks look for, each in the module of their framework (`adapters/`)."""
DOCSTRING = re.compile(r'(?:#.*\n|\s*\n)*r?"""\s*\S')


def test_every_module_has_a_docstring() -> None:
    without = [
        name_of(path)
        for path in modules("bench", "deploy", "examples", "src", "tests", "tools")
        if not DOCSTRING.match(path.read_text())
    ]
    assert without == []


def test_no_class_name_is_taken_twice() -> None:
    """Choose a name that is not taken: whoever searches for a class finds one."""
    counted = Counter(
        node.name
        for path in modules("src")
        if GENERATED not in path.parents
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in counted.items() if count > 1 and name not in ONE_EACH] == []
