"""The repository's own text files, for the checks in this folder."""

import ast
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GENERATED = REPOSITORY / "src" / "headrace" / "wire" / "messages"
"""Its names are those of Apache Kafka's message definitions."""

FOLDERS = ("bench", "deploy", "docs", "examples", "requirements", "src", "tests", "tools")
TEXT = {
    ".cfg",
    ".css",
    ".html",
    ".in",
    ".js",
    ".md",
    ".patch",
    ".py",
    ".sh",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file of the repository, without what tools leave behind."""
    top = [path for path in REPOSITORY.iterdir() if path.suffix in TEXT or path.name == "Makefile"]
    below = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*") if path.suffix in TEXT]
    found = (path for path in top + below if path.is_file() and "__pycache__" not in path.parts)
    return tuple(sorted(found))


def modules(*folders: str) -> list[Path]:
    """Every Python file below these folders."""
    return [
        path
        for path in text_files()
        if path.suffix == ".py" and path.relative_to(REPOSITORY).parts[0] in folders
    ]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()
