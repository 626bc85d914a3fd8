"""The programs in the pages about workers run, and do what the pages say; so do the examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 110


def run(*command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S)


def program_of(page: str) -> str:
    (program,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "docs" / "how-to" / page).read_text(), re.DOTALL
    )
    return program


@pytest.mark.parametrize(
    ("page", "prints"),
    [
        ("workers.md", "sent to busy@example.org"),
        ("dead-letters.md", "b'table 4' b'one stone' rejected - Rejected by the task: nobody eats stones"),
        ("migrate-from-celery.md", "delivered to ada@example.org"),
    ],
)
def test_a_pages_program_prints_what_it_says(page, prints, tmp_path):
    (tmp_path / "program.py").write_text(program_of(page))
    ran = run(sys.executable, "program.py", cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == prints


def test_the_page_about_testing_passes_as_a_test(tmp_path):
    (tmp_path / "test_page.py").write_text(program_of("testing-workers.md"))
    ran = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)

    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("example", ["images", "emails", "fraud"])
def test_an_example_holds_its_account(example, tmp_path):
    ran = run(sys.executable, str(REPOSITORY / "examples" / f"{example}.py"), cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("the account holds")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
