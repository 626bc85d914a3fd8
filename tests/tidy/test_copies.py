"""No dataclass copies another one field by field: what has the same fields is the same class."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.tidy.tree import GENERATED, REPOSITORY, modules, parsed

PACKAGE = REPOSITORY / "src" / "headrace"
COPIES_MIN, SHARE = 4, 0.8
"""From how many fields of one object on, and which part of all fields, it is a copy."""
ALLOWED = {
    "cli/consume_plain.py:Shown": "a record of aiokafka, as the output formats need it",
    "cli/consume_shared.py:Shown": "a delivery, whose fields are properties, as the output formats need it",
    "client/cluster.py:Node": "from generated messages of several APIs",
    "share/partition.py:StateBatch": "of ranges that change later",
    "web/sampler.py:DiskRow": "without the size of each partition",
    "worker/delivery_facts.py:DeliveryFacts": "the part of a delivery that another process can get",
    "worker/transactions/once.py:RecordPlace": "where the record of a run is, as a key",
}
"""Copies that stay, and why. The list may only shrink."""


@cache
def fields() -> dict[str, tuple[str, ...]]:
    """The fields of every dataclass, named tuple and struct in src/, by the name of its class; these are unique."""
    found: dict[str, tuple[str, ...]] = {}
    for path in modules("src"):
        if GENERATED in path.parents:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                names = (one.target.id for one in node.body if _is_field(one))  # type: ignore[attr-defined]
                found[node.name] = tuple(names)
    return found


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def copies(tree: ast.Module) -> Iterator[str]:
    """The classes that are made from the fields of one object with the same names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        names = fields().get(node.func.id, ())
        given = [*zip(names, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
        sources = Counter(
            ast.unparse(value.value)
            for name, value in given
            if isinstance(value, ast.Attribute) and value.attr == name
        )
        for source, count in sources.items():
            if source != "self" and names and count >= COPIES_MIN and count >= SHARE * len(given):
                yield node.func.id


def test_no_class_is_filled_field_by_field_from_another() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in modules("src")
        if PACKAGE in path.parents and GENERATED not in path.parents
        for name in copies(parsed(path))
    }
    assert found == set(ALLOWED)


def test_a_copy_is_found() -> None:
    copied = ", ".join(f"{name}=one.{name}" for name in fields()["CommittedOffset"])
    assert [*copies(ast.parse(f"CommittedOffset({copied})"))] == ["CommittedOffset"]
    computed = ", ".join(f"{name}=find_{name}()" for name in fields()["CommittedOffset"])
    assert [*copies(ast.parse(f"CommittedOffset({computed})"))] == []
