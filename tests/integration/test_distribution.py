"""The wheel and the source archive: what is in them, what their metadata says, and that both install and work.

The installation runs with `--thorough` only: it takes the dependencies from the machine's package index, once for each
Python from 3.11 to 3.14 that the machine has.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from headrace.version import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT_URL = "https://project.example/headrace"
WAIT_S = 300
LINK = re.compile(r"\]\(([^)\s]+)\)")
VERSIONS = [f"python3.{minor}" for minor in (11, 12, 13, 14)]
SMOKE = """
from headrace import Broker, Queue

with Broker() as broker:
    queue = Queue(broker.bootstrap_servers, group_id="mailers")

    @queue.task("emails")
    async def send(address: str) -> None:
        print("sent to", address)
        queue.stop()

    queue.send("emails", "ada@example.org")
    queue.run()
"""


def build(folder: Path, project_url: str = "") -> tuple[Path, Path]:
    """The wheel and the source archive, as `make dist` builds them."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = {**os.environ, "PROJECT_URL": project_url}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, timeout=WAIT_S)
    (wheel,) = folder.glob("*.whl")
    (archive,) = folder.glob("*.tar.gz")
    return wheel, archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(opened.read(name))


def description_of(metadata: Message) -> str:
    text = metadata.get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def test_the_wheel_has_the_packages_and_their_data_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    assert {
        "headrace/py.typed",
        "headrace/web/templates/overview.html",
        "headrace/web/static/style.css",
    } <= names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "headrace",
        "pyspark_headrace",
        "pyspark_headrace_ack",
        "pyspark_headrace_dead_letters",
        "pyspark_headrace_sink",
        "pyspark_headrace_state",
    }


def test_the_source_archive_has_what_a_build_and_the_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        "LICENSE",
        "Makefile",
        "README.md",
        "pyproject.toml",
        "tools/hatch_metadata.py",
        "tests/conftest.py",
    }
    assert needed <= names
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/"))]


def test_the_metadata_is_complete(built: tuple[Path, Path]) -> None:
    metadata = metadata_of(built[0])
    for field in ("Summary", "Author", "Keywords", "License-Expression", "License-File", "Requires-Python"):
        assert metadata[field], field
    assert metadata["Version"] == __version__
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "arrow", "asyncpg", "celery", "django", "dramatiq", "oauth", "otel", "postgres", "spark", "sqlalchemy",
        "taskiq", "web",
    }  # fmt: skip


def test_a_build_without_a_project_url_names_no_host_and_has_no_dead_links(built: tuple[Path, Path]) -> None:
    metadata = metadata_of(built[0])
    assert metadata.get_all("Project-URL") is None
    text = description_of(metadata)
    assert text.startswith("# Headrace")
    assert "<!--" not in text
    assert LINK.findall(text) == []


def test_the_links_of_a_release_lead_to_files_of_its_tag(tmp_path: Path) -> None:
    metadata = metadata_of(build(tmp_path, PROJECT_URL)[0])
    links = LINK.findall(description_of(metadata))
    links += [line.partition(", ")[2] for line in metadata.get_all("Project-URL", [])]
    below = re.compile(rf"{re.escape(PROJECT_URL)}(?:/(?:blob|raw)/v{re.escape(metadata['Version'])}/(\S+))?")
    found = {link: below.fullmatch(link) for link in links}
    assert [link for link, place in found.items() if place is None] == []
    named = {place[1].partition("#")[0] for place in found.values() if place is not None and place[1]}
    assert len(named) > 5
    assert [name for name in named if not (REPOSITORY / name).is_file()] == []


def pythons() -> list[str]:
    """Those of the machine that can make an environment; a version manager may list some that do not start."""
    found = [path for name in VERSIONS if (path := shutil.which(name))] or [sys.executable]
    probe = "import ensurepip, venv"
    return [
        path for path in found if subprocess.run([path, "-c", probe], capture_output=True).returncode == 0
    ]


def install_and_try(python: str, archive: Path, version: str, folder: Path) -> None:
    subprocess.run([python, "-m", "venv", str(folder / "environment")], check=True, timeout=WAIT_S)

    def run(*command: str) -> str:
        whole = [str(folder / "environment" / "bin" / command[0]), *command[1:]]
        ran = subprocess.run(whole, cwd=folder, capture_output=True, text=True, timeout=WAIT_S)
        assert ran.returncode == 0, f"{python}: {command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    run("pip", "--disable-pip-version-check", "install", "--quiet", f"{archive}[web]")
    assert version in run("headrace", "--version")
    assert run("python", "-W", "error", "-c", SMOKE) == "sent to ada@example.org\n"
    run("python", "-W", "error", "-c", "import headrace.web")
    run("pip", "--disable-pip-version-check", "check")


@pytest.mark.thorough
@pytest.mark.timeout(2 * len(VERSIONS) * WAIT_S)
@pytest.mark.parametrize("kind", ["wheel", "source archive"])
def test_it_installs_into_an_empty_environment_and_works(
    built: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    archive = built[0] if kind == "wheel" else built[1]
    found = pythons()
    assert found
    for python in found:
        folder = tmp_path / Path(python).name
        folder.mkdir()
        install_and_try(python, archive, metadata_of(built[0])["Version"], folder)
