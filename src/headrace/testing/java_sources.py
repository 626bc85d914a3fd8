"""Java programs of tests and benchmarks: compiled once per user, into the per-user cache."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.user_cache import filled

COMPILE_S_MAX = 120


def find_compiler() -> Path:
    """The `javac` beside the Java that is used, else the one on the path; JavaNotFound."""
    found = find_java().home / "bin" / "javac"
    if found.is_file():
        return found
    on_path = shutil.which("javac")
    if on_path is None:
        raise JavaNotFound("javac is missing: install a JDK of version 17 or newer, or set JAVA_HOME to one")
    return Path(on_path)


def compiled(name: str, sources: Sequence[Path], class_path: Sequence[str | Path]) -> Path:
    """The folder of the classes, `name` in the cache. Compiles them where the sources are new, or Java is."""
    text = "\n".join(path.read_text() for path in sources) + str(find_java().version)

    def compile_into(folder: Path) -> None:
        jars = os.pathsep.join(map(str, class_path))
        command: list[str | Path] = [find_compiler(), "-nowarn", "-d", folder, "-cp", jars, *sources]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S_MAX)
        if answer.returncode != 0:
            raise RuntimeError(f"javac: {answer.stderr}")
        (folder / "sources.txt").write_text(text)

    def is_current(folder: Path) -> bool:
        kept = folder / "sources.txt"
        return kept.is_file() and kept.read_text() == text

    return filled(name, is_current=is_current, fill=compile_into)
