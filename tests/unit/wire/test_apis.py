"""Headers of requests and responses, and the table of APIs."""

import pytest

from headrace.wire.apis import (
    NAMES,
    RequestHeader,
    read_request_header,
    read_response_header,
    request_class,
    response_class,
    response_header_has_tags,
    write_request_header,
)
from headrace.wire.codec import MalformedMessage


@pytest.mark.parametrize("api_key", sorted(NAMES))
def test_every_api_has_a_request_and_a_response_of_that_key(api_key: int) -> None:
    assert api_key == request_class(api_key).API_KEY
    assert api_key == response_class(api_key).API_KEY


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize("client_id", [None, "", "billing-é"])
def test_a_request_header_reads_back_as_written(version: int, client_id: str | None) -> None:
    header = RequestHeader(1, version, -5, client_id)
    out = bytearray()
    write_request_header(out, header)
    assert read_request_header(bytes(out) + b"body") == (header, len(out))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x01\x00\x04",
        b"\x00\x01\x00\x04\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x01\x00\x04\x00\x00\x00\x01\xff\xf0",
        b"\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff",
        b"\x00\x01\x00\x04\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_headers_that_are_cut_short_or_no_text_are_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(frame)


def test_a_header_with_very_many_tagged_fields_is_refused() -> None:
    tags = b"\x80\x40" + b"\x01\x00" * 8192
    with pytest.raises(MalformedMessage, match="8192 tagged fields"):
        read_request_header(b"\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff" + tags)


def test_the_answer_to_api_versions_has_the_old_header_in_every_version() -> None:
    assert not response_header_has_tags(18, 4)
    assert response_header_has_tags(1, 12)
    assert not response_header_has_tags(1, 11)
    assert read_response_header(1, 11, b"\x00\x00\x00\x09") == (9, 4)
