"""Goal: what passes by itself is tried again within one budget of time, what does not is raised at once.

Method: a cluster that answers from a script.
"""

import asyncio
import inspect
import pickle
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from headrace.client.admin.call import (
    PARALLEL_MAX,
    AdminCall,
    SomeFailedError,
    in_parallel,
    outcome,
    raise_for,
)
from headrace.client.cluster import ANY, Cluster
from headrace.client.errors import GroupIdNotFoundError, TopicExistsError, error_for
from headrace.client.settings import ClientSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from tests.virtual_time import run_in_virtual_time

QUICK = ClientSettings.parse(
    bootstrap_servers="localhost:1",
    default_api_timeout_ms=400,
    retry_backoff_ms=1,
    retry_backoff_max_ms=2,
    request_timeout_ms=100,
)


class ScriptedCluster:
    """Each request gets the next answer of the script; an error code is raised as its exception."""

    def __init__(self, *script: ErrorCode | str, coordinators: tuple[int, ...] = (1,)) -> None:
        self.script = list(script)
        self.coordinators = list(coordinators)
        self.sent: list[int] = []
        self.forgotten = 0
        self.timeouts_ms: list[float] = []

    async def send(
        self, node_id: int, request: Message, *, timeout_ms: float, version_max: int | None
    ) -> str:
        self.sent.append(node_id)
        self.timeouts_ms.append(timeout_ms)
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, ErrorCode):
            raise error_for(answer)
        return answer

    async def coordinator(self, group_id: str) -> int:
        return self.coordinators[0]

    def forget_coordinator(self, group_id: str) -> None:
        self.forgotten += 1
        if len(self.coordinators) > 1:
            self.coordinators.pop(0)


def run(scripted: ScriptedCluster, ask: Callable[[AdminCall], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await ask(AdminCall(cast(Cluster, scripted), QUICK))

    return run_in_virtual_time(main())


def ask_any(call: AdminCall) -> Awaitable[str]:
    return call.ask(Message(), lambda answer: str(answer))


def ask_coordinator(call: AdminCall) -> Awaitable[str]:
    return call.ask_coordinator("g", Message(), lambda answer: str(answer))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ],
)
def test_what_passes_by_itself_is_tried_again(code: ErrorCode) -> None:
    cluster = ScriptedCluster(code, code, "done")
    assert run(cluster, ask_any) == "done"
    assert cluster.sent == [ANY] * 3


def test_what_does_not_pass_is_raised_at_once() -> None:
    cluster = ScriptedCluster(ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(GroupIdNotFoundError) as raised:
        run(cluster, ask_any)
    assert (len(cluster.sent), getattr(raised.value, "__notes__", [])) == (1, [])


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_has_moved_is_looked_for_anew(code: ErrorCode) -> None:
    cluster = ScriptedCluster(code, "done", coordinators=(1, 2))
    assert run(cluster, ask_coordinator) == "done"
    assert (cluster.sent, cluster.forgotten) == ([1, 2], 1)


def test_a_coordinator_that_loads_is_asked_again() -> None:
    cluster = ScriptedCluster(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "done", coordinators=(1, 2))
    assert run(cluster, ask_coordinator) == "done"
    assert (cluster.sent, cluster.forgotten) == ([1, 1], 0)


def test_when_time_is_over_the_last_error_is_raised_with_how_long_it_was_tried() -> None:
    cluster = ScriptedCluster(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(KafkaError, match="NOT_COORDINATOR") as raised:
        run(cluster, ask_coordinator)
    assert raised.value.__notes__ == ["Tried for 0.4 s (default.api.timeout.ms)."]
    assert 10 < len(cluster.sent) < 450, "tries are spaced"
    assert cluster.timeouts_ms[0] == 100
    assert 1 <= cluster.timeouts_ms[-1] < 100, "no request may outlive the call"


def test_a_refusal_after_a_cut_off_attempt_says_that_it_may_have_been_done() -> None:
    with pytest.raises(TopicExistsError) as raised:
        run(ScriptedCluster(ErrorCode.NETWORK_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS), ask_any)
    assert "may have done it" in raised.value.__notes__[0]


def test_one_failure_is_itself_and_several_come_together() -> None:
    missing = error_for(ErrorCode.GROUP_ID_NOT_FOUND, about="group 'a'")
    raise_for({})
    raise_for({"a": None, "b": None})
    with pytest.raises(GroupIdNotFoundError):
        raise_for({"a": missing})
    with pytest.raises(SomeFailedError, match=r"1 of 2 failed:\n  group 'a'") as raised:
        raise_for({"a": missing, "b": None})
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.total, list(again.errors)) == (str(raised.value), 2, ["a"])


def test_only_so_many_jobs_run_at_a_time_and_results_keep_their_order() -> None:
    running, most = 0, 0

    async def job(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert asyncio.run(in_parallel(job(number) for number in range(50))) == list(range(50))
    assert most == PARALLEL_MAX


def test_every_job_has_ended_when_the_first_error_is_raised() -> None:
    ended = []

    async def job(number: int) -> None:
        await asyncio.sleep(0)
        ended.append(number)
        if number < 2:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"job {number}")

    with pytest.raises(KafkaError, match="job 0"):
        asyncio.run(in_parallel(job(number) for number in range(4)))
    assert ended == [0, 1, 2, 3]


def test_jobs_that_are_canceled_before_they_begin_are_put_away() -> None:
    async def job() -> None:
        await asyncio.sleep(60)  # never reached: it is canceled before its first step

    jobs = [job(), job()]

    async def cancel_at_once() -> None:
        task = asyncio.create_task(in_parallel(jobs))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_at_once())
    assert [inspect.getcoroutinestate(each) for each in jobs] == [inspect.CORO_CLOSED] * 2


def test_an_error_can_be_a_result() -> None:
    async def fail() -> None:
        raise error_for(ErrorCode.NON_EMPTY_GROUP)

    async def succeed() -> None:
        return None

    jobs: list[Coroutine[Any, Any, KafkaError | None]] = [outcome(fail()), outcome(succeed())]
    first, second = asyncio.run(in_parallel(jobs))
    assert (type(first).__name__, second) == ("NonEmptyGroupError", None)
