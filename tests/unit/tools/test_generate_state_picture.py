"""The picture of a record's states is current, and shows every step of the engine's table."""

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

from headrace.share.states import TRANSITIONS, RecordState

GENERATOR = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tools" / "generate_state_picture.py"))


def texts() -> list[str]:
    return [
        node.text or ""
        for node in ET.fromstring(GENERATOR["render"]()).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_the_picture_is_current() -> None:
    assert GENERATOR["TARGET"].read_text() == GENERATOR["render"](), "run make docs"


def test_every_state_has_its_box() -> None:
    assert {state.name for state in RecordState} <= set(texts())


def test_every_transition_is_named_once_on_its_arrow() -> None:
    named = [cause for text in texts() if text.islower() for cause in text.rstrip(",").split(", ")]
    assert sorted(named) == sorted(cause.name.lower().replace("_", " ") for _, cause in TRANSITIONS)


def test_no_arrow_is_left_over() -> None:
    assert set(GENERATOR["ARROWS"]) == {(before, after) for (before, _), after in TRANSITIONS.items()}
