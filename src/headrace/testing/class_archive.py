"""Apache Kafka's classes in one file that a JVM maps into memory, which halves the processor time of its start.

`python -m headrace.testing` (`make kafka-jars`) creates the file once per user, from a list of the classes that a
broker and some tools load. Java ignores a file of another build or of other jars, and without the file it only starts
slower.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from headrace.testing.java import find_java
from headrace.testing.kafka_jars import KAFKA_VERSION, kafka_jars
from headrace.testing.user_cache import cache_folder, filled

NAME = f"kafka-{KAFKA_VERSION}-classes"
DUMP_TIMEOUT_S = 300
OPTIONS_OF_EVERY_JAVA = "JDK_JAVA_OPTIONS"


def class_path() -> str:
    """Every jar by name: Java expands a `*` in any order, and takes an archive for one order only."""
    return os.pathsep.join(map(str, sorted(kafka_jars().glob("*.jar"))))


def archive_options() -> tuple[str, ...]:
    """Options for a JVM that runs with `class_path()`; none while there is no archive for it."""
    folder = cache_folder() / NAME
    if not _is_current(folder):
        return ()
    return ("-Xshare:auto", f"-XX:SharedArchiveFile={folder / 'classes.jsa'}", "-Xlog:cds*=off")


def make_archive(run_something: Callable[[], None]) -> None:
    """Makes it unless it is there, of the classes that the JVMs of `run_something` load."""
    filled(NAME, is_current=_is_current, fill=lambda folder: _make(folder, run_something))


def _is_current(folder: Path) -> bool:
    made_for = folder / "made-for"
    return made_for.is_file() and made_for.read_text() == _identity()


def _identity() -> str:
    java = find_java().executable.resolve()
    return f"{java}\n{java.stat().st_mtime_ns}\n{class_path()}\n"


def _make(folder: Path, run_something: Callable[[], None]) -> None:
    before = os.environ.get(OPTIONS_OF_EVERY_JAVA)
    os.environ[OPTIONS_OF_EVERY_JAVA] = f"-XX:DumpLoadedClassList={folder}/%p.list"
    try:
        run_something()
    finally:
        del os.environ[OPTIONS_OF_EVERY_JAVA]
        if before is not None:
            os.environ[OPTIONS_OF_EVERY_JAVA] = before
    classes: dict[str, None] = {}
    for found in folder.glob("*.list"):
        classes |= dict.fromkeys(found.read_text().splitlines())
        found.unlink()
    (folder / "classes.txt").write_text("\n".join(classes) + "\n")
    command = [str(find_java().executable), "-Xshare:dump", "-Xlog:all=error", "-XX:+UseSerialGC"]
    command += [
        f"-XX:SharedClassListFile={folder}/classes.txt",
        f"-XX:SharedArchiveFile={folder}/classes.jsa",
    ]
    command += ["-cp", class_path()]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S)
    if answer.returncode != 0:
        raise OSError(f"java -Xshare:dump: {(answer.stdout + answer.stderr).strip()[-300:]}")
    (folder / "made-for").write_text(_identity())
