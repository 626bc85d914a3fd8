"""One file per Kafka API, with the API's name: a file that is here is served. It has these names:

VERSIONS            the versions we speak, which is what ApiVersions advertises
handle              (core, request, call) -> the response, or a Later of it
CUTS                how a request about many things is handled in pieces, by the first version that it is for
                    (broker/pieces.py)
TAKES_MANY          True where the handler itself bounds what one turn of the loop does for many things, by steps
                    (broker/slices.py) or pages. The lists of requests that have neither this nor CUTS may have fewer
                    elements (broker/elements.py)
error_response      (request, code, message, call) -> the response to a request that failed as a whole; only where
                    the schema does not say it (broker/error_responses.py)

Modules are imported when their API is first asked for, so that starting stays fast.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from headrace.broker import error_responses
from headrace.broker.call import Call
from headrace.wire.apis import NAMES
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message

_files = {module.name for module in iter_modules(__path__)}
SERVED = tuple(key for key, name in NAMES.items() if name in _files)
_served = frozenset(SERVED)


@cache
def handler_of(api_key: int) -> Any:
    return import_module(f"{__name__}.{NAMES[api_key]}")


def served_versions(api_key: int) -> tuple[int, int] | None:
    if api_key not in _served:
        return None
    versions: tuple[int, int] = handler_of(api_key).VERSIONS
    return versions


def error_response(request: Message, code: ErrorCode, message: str | None, call: Call) -> Message:
    """The response to a request that failed as a whole; raises CloseConnection where there is none."""
    handler = handler_of(request.API_KEY)
    if hasattr(handler, "error_response"):
        response: Message = handler.error_response(request, code, message, call)
        return response
    return error_responses.error_response(request, code, message, call.api_version)
