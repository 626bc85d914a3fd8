"""Every API we serve has a handler of the agreed shape, and speaks only versions its messages have."""

from pathlib import Path

import pytest

from headrace.broker import handlers
from headrace.broker.call import Call
from headrace.broker.handlers import SERVED, error_response, handler_of, served_versions
from headrace.wire.apis import NAMES, request_class, response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: NAMES[key])
def test_a_served_api_has_versions_and_a_handler(api_key: int) -> None:
    handler = handler_of(api_key)
    low, high = handler.VERSIONS
    assert request_class(api_key).VERSIONS[0] <= low <= high <= request_class(api_key).VERSIONS[1]
    assert callable(handler.handle)


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: NAMES[key])
def test_the_error_answer_can_be_written_in_every_version(api_key: int) -> None:
    low, high = handler_of(api_key).VERSIONS
    for version in range(low, high + 1):
        request = request_class(api_key)(**({"acks": 1} if NAMES[api_key] == "produce" else {}))
        call = Call(api_version=version)
        response = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, "trouble", call)
        read_message(response_class(api_key), version, encode(response, version))


def test_every_file_of_the_handlers_is_served() -> None:
    files = {path.stem for path in Path(handlers.__file__).parent.glob("*.py")} - {"__init__"}
    assert {NAMES[api_key] for api_key in SERVED} == files


def test_what_is_not_served_has_no_versions() -> None:
    assert served_versions(4) is None
    assert served_versions(999) is None
