"""Packages that tests need beside those that are installed, in the per-user cache: fetched by name, with pip."""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.testing.user_cache import filled

FETCH_S_MAX = 300
DJANGO_6 = "6.0"


class PackagesUnavailable(Exception):
    """pip cannot fetch a package here."""


def pip(command: str, *arguments: str) -> None:
    """PackagesUnavailable has the last line that pip has written."""
    called = [sys.executable, "-m", "pip", command, "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(called, capture_output=True, text=True, timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"pip {command} did not end within {FETCH_S_MAX} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PackagesUnavailable(f"pip {command} {arguments[-1]} failed: {last}")


def django_6() -> Path:
    """A folder for PYTHONPATH with Django 6, the first that has tasks. It asks for Python 3.12, but runs on 3.11."""

    def fill(folder: Path) -> None:
        with TemporaryDirectory(prefix="django-") as name:
            pip(
                "download", "--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--dest", name,
                f"django=={DJANGO_6}",
            )  # fmt: skip
            (wheel,) = Path(name).iterdir()
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(folder)

    return filled(f"django-{DJANGO_6}", is_current=lambda folder: (folder / "django").is_dir(), fill=fill)
