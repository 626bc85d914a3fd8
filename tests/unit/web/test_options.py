"""A dashboard that others can reach needs a token."""

import pytest

from headrace.web.options import WebOptions, is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    WebOptions(host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.7", "example.org", "127.0.0.1.example.org"])
def test_other_addresses_need_one(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match="set a token"):
        WebOptions(host=host)
    WebOptions(host=host, token="x" * 16)


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="it has 6 characters; use 16 or more"):
        WebOptions(token="secret")


def test_a_sampling_interval_that_is_no_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sample_s must be from .* seconds, got 0"):
        WebOptions(sample_s=0)
