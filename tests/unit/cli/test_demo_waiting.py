"""A story of the demo that waits in vain says what for, and what to do about it."""

import threading

import pytest

from headrace.cli.demo import world as demo_world
from headrace.cli.demo.world import TookTooLong, World
from headrace.cli.failures import explain


def test_a_wait_in_vain_names_what_did_not_come_and_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_world, "WAIT_S_MAX", 0.3)
    monkeypatch.setattr(demo_world, "TICK_S", 0.1)
    world = World.__new__(World)
    world.stopping = threading.Event()
    with pytest.raises(TookTooLong) as waited:
        world.until(lambda: False, "Spark")
    said = explain(waited.value)
    assert said.startswith("waited 0 s for Spark. If the machine is busy, try again later, or play one part")
    assert "TookTooLong" not in said
