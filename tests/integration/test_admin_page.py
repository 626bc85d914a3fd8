"""The how-to page of the admin client is a program, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "admin.md"
WAIT_S = 120


def test_the_page_about_the_admin_client_prints_what_it_says(tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    promised = re.findall(r"^# (.+)$", program, re.MULTILINE)
    assert len(promised) == 11
    assert ran.stdout.splitlines() == promised
