"""The group's window of locks: raised where nobody has set it, and otherwise left alone. On both brokers."""

import logging

import pytest

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.errors import error_for
from headrace.spark.window import LOCKS_ALLOWED
from headrace.wire.errors import ErrorCode
from tests.spark.conftest import Queue
from tests.spark.test_driver import Open, drained, initial, opened, queue, records

pytestmark = pytest.mark.timeout(180)
__all__ = ["opened", "queue"]
WINDOW = "share.partition.max.record.locks"


def window_of(queue: Queue) -> str | None:
    with queue.admin() as admin:
        return admin.group_config(queue.group)[WINDOW].value


def told(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if WINDOW in each.getMessage())


def test_it_is_raised_as_far_as_the_brokers_allow_and_that_is_told(
    opened: Open, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send(12_000)
    driver = opened(drain=True)
    with caplog.at_level(logging.WARNING):
        offsets = drained(driver, initial(queue))
    assert window_of(queue) == str(LOCKS_ALLOWED)
    assert f"{WINDOW} of group {queue.group} is set to 4000, which was 2000 by default" in told(caplog)
    assert "raise group.share.max.partition.max.record.locks in the brokers' settings" in told(caplog)
    assert sum(map(records, offsets)) == 12_000
    assert max(map(records, offsets)) > 2 * 2_000
    caplog.clear()
    assert drained(opened(drain=True), offsets[-1]) == []
    assert told(caplog) == "", "it is set now"


def test_a_query_that_needs_little_raises_it_for_those_after_it_too(opened: Open, queue: Queue) -> None:
    """They cannot see who has set it, and would leave it as it is."""
    queue.send(12_000)
    small = opened(maxRecordsPerTrigger=2_500)
    end = small.latest(initial(queue), None)
    small.close()
    assert window_of(queue) == str(LOCKS_ALLOWED)
    offsets = drained(opened(drain=True), end)
    assert max(map(records, offsets)) > 2 * 2_500


@pytest.mark.parametrize("locks", ["150", "2000"])
def test_what_was_set_for_the_group_stays(opened: Open, queue: Queue, locks: str) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {WINDOW: locks})
    queue.send(10)
    opened().latest(initial(queue), None)
    assert window_of(queue) == locks


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"maxRecordsPerTrigger": 1_000}, id="small micro-batches"),
        pytest.param({"acknowledge": "handoff", "checkpointLocation": ""}, id="records are accepted ahead"),
    ],
)
def test_where_it_suffices_it_stays(
    opened: Open, queue: Queue, options: dict[str, object], tmp_path: object
) -> None:
    queue.send(10)
    if "checkpointLocation" in options:
        options = {**options, "checkpointLocation": tmp_path}
    opened(**options).latest(initial(queue), None)
    assert window_of(queue) == "2000"


def test_a_query_that_may_not_raise_it_says_what_to_do_and_goes_on(
    opened: Open, queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_group_config = AsyncAdmin.set_group_config

    async def refuse(self: AsyncAdmin, group_id: str, changes: dict[str, object]) -> None:
        if WINDOW in changes:
            raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not yours", about=group_id)
        await set_group_config(self, group_id, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncAdmin, "set_group_config", refuse)
    queue.send(10)
    with caplog.at_level(logging.WARNING):
        end = opened().latest(initial(queue), None)
    assert records(end) > 0
    assert f"`headrace group config set {queue.group} {WINDOW}=4000`" in told(caplog)
    assert window_of(queue) == "2000"
