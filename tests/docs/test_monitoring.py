"""The alert rules under deploy/ fire when they should, by Prometheus' own test tool."""

import subprocess

import pytest

from tests.docs.pages import REPOSITORY

PROMETHEUS = REPOSITORY / "deploy" / "prometheus"


def promtool(*arguments: str) -> None:
    ran = subprocess.run(
        ["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.needs_prometheus
def test_every_alert_fires_when_it_should_and_only_then() -> None:
    promtool("check", "rules", "headrace-alerts.yml")
    promtool("test", "rules", "headrace-alerts-test.yml")
