"""What `from headrace import ...` offers (design.md, section 4), and that asking for none of it costs nothing."""

import subprocess
import sys

import pytest

import headrace

PROMISED = {
    *("Broker", "ShareConsumer", "AsyncShareConsumer", "Admin", "AsyncAdmin"),
    *("AcknowledgeType", "Delivery", "Queue"),
}


def test_every_promised_name_is_offered() -> None:
    assert set(headrace.__all__) >= PROMISED


@pytest.mark.parametrize("name", headrace.__all__)
def test_a_public_name_is_found(name: str) -> None:
    assert getattr(headrace, name) is not None


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Broken'"):
        _ = headrace.Broken


def test_importing_the_package_imports_no_part_of_it() -> None:
    program = "import headrace, sys; print([n for n in sys.modules if n.startswith('headrace.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['headrace.version']"
