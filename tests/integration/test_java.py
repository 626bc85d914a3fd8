"""Which Java is taken: the machine's own when it is new enough, else the wheel's behind a shim."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.testing import java


@pytest.fixture
def java_home(tmp_path: Path) -> Callable[[str], Path]:
    def make(version: str) -> Path:
        home = tmp_path / f"java-{version}"
        (home / "bin").mkdir(parents=True)
        executable = home / "bin" / "java"
        executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        executable.chmod(0o755)
        return home

    return make


@pytest.fixture(autouse=True)
def _forget_what_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


def test_java_home_comes_before_the_path(
    java_home: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home("21.0.1")))
    monkeypatch.setenv("PATH", f"{java_home('17.0.9')}/bin:/bin")
    assert java.find_java() == java.Java(Path(os.environ["JAVA_HOME"]), 21)


def test_a_java_home_that_is_too_old_gives_way_to_the_path(
    java_home: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home("1.8.0_392")))
    home = java_home("17.0.9")
    monkeypatch.setenv("PATH", f"{home}/bin:/bin")
    assert java.find_java() == java.Java(home, 17)


def test_the_shim_drops_the_flag_its_runtime_does_not_know(tmp_path: Path) -> None:
    shim = tmp_path / "java"
    shim.write_text(java.SHIM.format(java="printf '<%s>'"))
    shim.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main", "two words"]
    assert subprocess.check_output([shim, *arguments], text=True) == "<-Xmx1g><Main><two words>"
