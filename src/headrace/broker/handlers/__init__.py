"""One file per Kafka API, found by the API's key. A handler module has three names:

VERSIONS            the versions we speak, which is what ApiVersions advertises
handle              (core, request, call) -> the response, or a Later of it
error_response      (request, code, message, call) -> the response to a request that failed as a whole

Modules are imported when their API is first asked for, so that starting stays fast.
"""

from importlib import import_module
from typing import Any

from headrace.wire.apis import NAMES

SERVED: tuple[int, ...] = (
    0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 32, 33, 35, 37, 42, 43, 44, 46, 47, 48, 55, 60, 61, 65, 66, 68, 69, 74, 75,
    76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92,
)  # fmt: skip
_handlers: dict[int, Any] = {}


def handler_of(api_key: int) -> Any:
    handler = _handlers.get(api_key)
    if handler is None:
        handler = _handlers[api_key] = import_module(f"{__name__}.{NAMES[api_key]}")
    return handler


def served_versions(api_key: int) -> tuple[int, int] | None:
    if api_key not in SERVED:
        return None
    versions: tuple[int, int] = handler_of(api_key).VERSIONS
    return versions
