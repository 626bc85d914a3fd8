"""The repository's own text files, for the checks in this folder."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
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


def text_files() -> list[Path]:
    """Every text file of the repository, without what tools leave behind."""
    top = [path for path in REPOSITORY.iterdir() if path.suffix in TEXT or path.name == "Makefile"]
    below = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*") if path.suffix in TEXT]
    return sorted(path for path in top + below if path.is_file() and "__pycache__" not in path.parts)


def modules(*folders: str) -> list[Path]:
    """Every Python file below these folders."""
    return [
        path
        for path in text_files()
        if path.suffix == ".py" and path.relative_to(REPOSITORY).parts[0] in folders
    ]


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()
