"""Django 6.0's own task interface, `django.tasks`, in place of the package `django_tasks` that the other tests use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import django_6

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 240
TESTS = "tests/integration/test_django_tasks.py"


@pytest.mark.needs_django_6
@pytest.mark.timeout(WAIT_S + 30)
def test_all_tests_of_djangos_tasks_pass_with_the_interface_of_django_6() -> None:
    path = os.pathsep.join([str(django_6()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    shown = "import django, tests.django_project as p; print(django.VERSION[0], p.INTERFACE)"
    used = subprocess.run(
        [sys.executable, "-c", shown], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert used.stdout.split() == ["6", "django.tasks"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not thorough", "-k", "not postgresql", TESTS]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
