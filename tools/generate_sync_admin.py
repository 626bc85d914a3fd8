"""Writes the methods of `Admin` (client/admin/sync.py) from those of `AsyncAdmin` (client/admin/aio.py).

What is above the marker in sync.py is written by hand: imports, and how it starts, stops and waits. Run it after every
change of AsyncAdmin's methods; tests/tidy compares.
"""

import ast
import subprocess
import sys
from pathlib import Path

ADMIN = Path(__file__).parent.parent / "src" / "headrace" / "client" / "admin"
MARKER = "    # Below: generated from AsyncAdmin by tools/generate_sync_admin.py. Do not edit.\n"
BY_HAND = {"start", "close"}


def render() -> str:
    """The whole of sync.py, as it should be."""
    source = (ADMIN / "aio.py").read_text()
    by_hand = (ADMIN / "sync.py").read_text().partition(MARKER)[0]
    methods = "\n".join(method(source, node) for node in public_methods(source))
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(ADMIN / "sync.py"), "-"]
    text = by_hand + MARKER + "\n" + methods
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def public_methods(source: str) -> list[ast.AsyncFunctionDef]:
    (admin,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    methods = [node for node in admin.body if isinstance(node, ast.AsyncFunctionDef)]
    return [node for node in methods if not node.name.startswith("_") and node.name not in BY_HAND]


def method(source: str, node: ast.AsyncFunctionDef) -> str:
    """The same signature and docstring; the body runs the twin."""
    lines = source.splitlines(keepends=True)
    docstring = node.body[0]
    head = "".join(lines[node.lineno - 1 : docstring.end_lineno]).replace("async def", "def", 1)
    given = [argument.arg for argument in node.args.args if argument.arg != "self"]
    given += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    word = "" if isinstance(node.returns, ast.Constant) else "return "
    return f"{head}        {word}self._run(self._admin.{node.name}({', '.join(given)}))\n"


if __name__ == "__main__":
    (ADMIN / "sync.py").write_text(render())
