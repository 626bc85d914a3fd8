"""What `from headrace import ...` offers."""

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
