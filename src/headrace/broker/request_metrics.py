"""What the broker counts of requests: how many of each API, how long they took, and the errors in their responses.

Theory of operation. It is on the way of every request, so each API's series are looked up once, and where a response
class has error codes is found once, from its schema. A request that waits (a fetch for records, a produce for the
disk) is timed until its response is ready.
"""

from collections.abc import Callable, Iterator
from functools import cache
from time import perf_counter
from typing import Any

from headrace.broker.metrics import Counter, Histogram, MetricsRegistry
from headrace.wire.apis import NAMES
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message

ERROR_FIELDS = frozenset({"error_code", "acknowledge_error_code"})
Finder = Callable[[Message], list[int]]
_FINDERS: dict[type[Message], Finder] = {}


class RequestMetrics:
    def __init__(self, metrics: MetricsRegistry) -> None:
        self._metrics = metrics
        self._requests: dict[int, Counter] = {}
        self._times: dict[int, Histogram] = {}

    def arrived(self, api_key: int) -> None:
        counter = self._requests.get(api_key)
        if counter is None:
            counter = self._requests[api_key] = self._metrics.counter(
                "RequestsPerSec", request=api_name(api_key)
            )
        counter.value += 1

    def answered(self, api_key: int, response: Message | None, began_s: float) -> None:
        """`began_s` is `perf_counter` at the request's arrival; None is no response, as with acks=0."""
        times = self._times.get(api_key)
        if times is None:
            times = self._times[api_key] = self._metrics.histogram("TotalTimeMs", request=api_name(api_key))
        times.observe((perf_counter() - began_s) * 1000)
        if response is not None:
            self.count_errors(api_key, response)

    def count_errors(self, api_key: int, response: Message) -> None:
        find = _FINDERS.get(type(response)) or _finder(type(response))
        for code in find(response):
            self._metrics.count("ErrorsPerSec", request=api_name(api_key), error=ErrorCode(code).name)


@cache
def api_name(api_key: int) -> str:
    return "".join(word.capitalize() for word in NAMES[api_key].split("_"))


def _finder(kind: type[Message]) -> Finder:
    """A function that lists the error codes in a response of this class. Compiled: every response passes through it."""
    lines = ["def find(o0):", "    found = []", *_search(kind, 0), "    return found"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    found: Finder = names["find"]
    _FINDERS[kind] = found
    return found


def _search(kind: type[Message], depth: int) -> Iterator[str]:
    """Lines that look into `o<depth>`, an object of this class: its own codes, then the lists that have some."""
    pad, name = "    " * (depth + 1), f"o{depth}"
    for field in kind.SCHEMA:
        if field.name in ERROR_FIELDS:
            yield f"{pad}if {name}.{field.name}: found.append({name}.{field.name})"
        elif field.kind == "[]struct" and field.struct is not None:
            inside = [*_search(field.struct, depth + 1)]
            if inside:
                yield f"{pad}for o{depth + 1} in {name}.{field.name} or ():"
                yield from inside


def errors_of(message: Message) -> list[int]:
    """Every error code in a response that is not 0."""
    return _finder(type(message))(message)
