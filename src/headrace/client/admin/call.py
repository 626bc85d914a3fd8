"""One call of the admin client: where its requests go, what is tried again, and when it gives up.

Theory of operation. A call has one budget of time, `default.api.timeout.ms`, for all its requests and retries. An
attempt that fails for a reason that passes by itself (a lost connection, a coordinator that moves or loads, a leader
or controller election, a quota) is made again after a back-off that doubles; every other error is the caller's at
once. When time is up the last such error is raised, with a note of how long it was tried.

Requests for a group go to its coordinator. Everything else goes to any broker: in KRaft a broker passes on what only
the controller may do, and NOT_CONTROLLER, its answer while there is no controller, is one of the reasons that pass.

A request that was cut off may have been done. Nothing here is harmed by being done twice, but the second answer may
then be a refusal (the topic exists, the group is gone): `SECOND_TIME` names those, and the error says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, cast

from headrace.client.cluster import ANY, Cluster, Node, retry_backoff
from headrace.client.errors import ConnectionLost, RequestTimeoutError, error_for
from headrace.client.settings import ClientSettings
from headrace.wire.error_groups import COORDINATOR_MOVED, PASSING, UNREACHABLE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message

T = TypeVar("T")
K = TypeVar("K")
PARALLEL_MAX = 8
"""How many requests one call has under way at a time."""

SECOND_TIME = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_PARTITIONS,
    }
)


class SomeFailedError(KafkaError):
    """Some of several things failed; all were tried. `errors` says what became of each one that failed.

    `code` and `message` are those of the first. A call for a single thing raises its own error instead.
    """

    def __init__(self, errors: Mapping[Any, KafkaError], total: int) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.code, first.message)
        self.errors = dict(errors)
        self.total = total

    def __str__(self) -> str:
        told = "\n".join(f"  {error}" for error in self.errors.values())
        return f"{len(self.errors)} of {self.total} failed:\n{told}"

    def __reduce__(self) -> Any:
        return type(self), (self.errors, self.total)


class AdminCall:
    """Made anew for each method of the admin client; holds what is left of its time."""

    def __init__(self, cluster: Cluster, settings: ClientSettings) -> None:
        self.cluster = cluster
        self._settings = settings
        self._deadline = _now() + settings.default_api_timeout_ms / 1000
        self._was_cut_off = False

    @property
    def request_ms(self) -> int:
        """How long the next request may take."""
        left_ms = int((self._deadline - _now()) * 1000)
        return max(1, min(left_ms, self._settings.request_timeout_ms))

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        retry = retry_backoff(self._settings, self._deadline)
        began = _now()
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                self._was_cut_off |= isinstance(error, (ConnectionLost, RequestTimeoutError))
                if error.code not in PASSING:
                    self._note_second_time(error)
                    raise
                wait_s = retry.wait_s(_now())
                if wait_s is None:
                    error.add_note(f"Tried for {_now() - began:.1f} s (default.api.timeout.ms).")
                    raise
            await asyncio.sleep(wait_s)

    async def send(self, node_id: int, request: Message, *, version_max: int | None = None) -> Any:
        """One attempt at one request."""
        return await self.cluster.send(node_id, request, timeout_ms=self.request_ms, version_max=version_max)

    async def ask(self, request: Message, read: Callable[[Any], T], *, node_id: int = ANY) -> T:
        """Asks one broker; `read` turns its response into the result, or raises what the response says."""

        async def attempt() -> T:
            return read(await self.send(node_id, request))

        return await self.retrying(attempt)

    async def ask_coordinator(
        self, group_id: str, request: Message, read: Callable[[Any], T], *, version_max: int | None = None
    ) -> T:
        async def attempt() -> T:
            try:
                return read(
                    await self.send(await self._coordinator(group_id), request, version_max=version_max)
                )
            except KafkaError as error:
                if error.code in COORDINATOR_MOVED | UNREACHABLE:
                    self.cluster.forget_coordinator(group_id)
                raise

        return await self.retrying(attempt)

    async def coordinator(self, group_id: str) -> Node:
        """The broker that coordinates a group."""

        async def attempt() -> Node:
            node_id = await self._coordinator(group_id)
            node = self.cluster.nodes.get(node_id)
            if node is None:
                self.cluster.forget_coordinator(group_id)
                raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, about=f"group {group_id!r}")
            return node

        return await self.retrying(attempt)

    async def _coordinator(self, group_id: str) -> int:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self.cluster.coordinator(group_id)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, about=f"group {group_id!r}") from None

    def _note_second_time(self, error: KafkaError) -> None:
        if self._was_cut_off and error.code in SECOND_TIME:
            error.add_note("An earlier attempt of this call was cut off, and may have done it.")


def raise_for(errors: Mapping[K, KafkaError | None]) -> None:
    """Nothing where all went well; else the one error, or all of them in one."""
    failed = {item: error for item, error in errors.items() if error is not None}
    if not failed:
        return
    if len(errors) == 1:
        raise next(iter(failed.values()))
    raise SomeFailedError(failed, len(errors))


async def in_parallel(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order, a few jobs at a time; all of them have ended when the first error is raised."""
    gate = asyncio.Semaphore(PARALLEL_MAX)

    async def run(job: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
        async with gate:
            try:
                return await job, None
            except Exception as error:
                return None, error

    begun = list(jobs)
    try:
        ended = await asyncio.gather(*map(run, begun))
    finally:
        for job in begun:
            job.close()  # canceled before it could start, it would be warned of
    for _, error in ended:
        if error is not None:
            raise error
    return [cast(T, result) for result, _ in ended]


async def outcome(job: Awaitable[object]) -> KafkaError | None:
    """What became of one thing of several: its error, or None."""
    try:
        await job
    except KafkaError as error:
        return error
    return None


def _now() -> float:
    return asyncio.get_running_loop().time()
