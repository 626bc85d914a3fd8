"""What calls itself pure in its docstring has an import-linter contract that holds it to that."""

import ast
import re
import tomllib

from tests.tidy.tree import GENERATED, REPOSITORY, modules, parsed

CLAIM = re.compile(r"\bPure\b[:.,]|\b[Pp]ure (functions|part|rules|state machine)\b")


def _contracted() -> set[str]:
    """Modules and packages that may not import asyncio."""
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return {
        name
        for contract in contracts
        if "asyncio" in contract.get("forbidden_modules", ())
        for name in contract["source_modules"]
    }


def _claiming() -> set[str]:
    return {
        ".".join(path.relative_to(REPOSITORY / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in modules("src")
        if GENERATED not in path.parents and CLAIM.search(ast.get_docstring(parsed(path)) or "")
    }


def test_every_module_that_calls_itself_pure_has_a_contract() -> None:
    contracted = _contracted()
    packages = {"headrace.client.producing", "headrace.broker.transactions"}  # they name their pure modules
    without = {
        name
        for name in _claiming() - packages
        if not any(name == each or name.startswith(f"{each}.") for each in contracted)
    }
    assert without == set()


def test_the_claims_are_found() -> None:
    assert {"headrace.share", "headrace.spark.matching", "headrace.client.producing.core"} <= _claiming()
