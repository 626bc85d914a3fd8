"""Every API we serve has a handler of the agreed shape, and speaks only versions its messages have."""

import pytest

from headrace.broker.call import Call
from headrace.broker.handlers import SERVED, handler_of, served_versions
from headrace.wire.apis import NAMES, request_class, response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: NAMES[key])
def test_a_served_api_has_versions_a_handler_and_an_error_answer(api_key: int) -> None:
    handler = handler_of(api_key)
    low, high = handler.VERSIONS
    assert request_class(api_key).VERSIONS[0] <= low <= high <= request_class(api_key).VERSIONS[1]
    assert callable(handler.handle)
    assert callable(handler.error_response)


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: NAMES[key])
def test_the_error_answer_can_be_written_in_every_version(api_key: int) -> None:
    handler = handler_of(api_key)
    low, high = handler.VERSIONS
    for version in range(low, high + 1):
        request = request_class(api_key)(**({"acks": 1} if NAMES[api_key] == "produce" else {}))
        call = Call(api_version=version)
        response = handler.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, "trouble", call)
        read_message(response_class(api_key), version, encode(response, version))


def test_what_is_not_served_has_no_versions() -> None:
    assert served_versions(4) is None
    assert served_versions(999) is None
