"""The end of a life: every member is gone, and a fresh one of each share group takes what is left.

Nothing may be held any more, and whatever was neither settled nor deleted has to come.
"""

from typing import TYPE_CHECKING, Any

from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.share_state import ShareKey
from tests.simulation.models.share_shadow import S
from tests.simulation.network import Link
from tests.simulation.scenario import TOPICS
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.models.share import Share

ROUNDS_MAX = 1_500
ACCEPT = 1
MEMBER = "drain"
Place = tuple[bytes, int]


def drain(share: "Share") -> None:
    world = share.world
    for link in list(world.links):
        link.cut()
    world.settle()
    world.advance(0)
    world.settle()
    if not _is_running(share):
        return
    _check_free(share)
    for group_id in sorted({key.group_id for key in share.journal.stored}):
        _Drain(share, group_id, world.connect(MEMBER)).run()
        if not _is_running(share):
            return


def _is_running(share: "Share") -> bool:
    return share.world.failure is None and not share.world.has_crashed


def _check_free(share: "Share") -> None:
    """12. All members are gone: nobody holds anything."""
    for shadow in share.shadows.values():
        if not shadow.loaded._is_closed:
            for offset, one in shadow.offsets.items():
                if one.state is S.ACQUIRED:
                    raise Violation("share: held by a member that is gone", f"{shadow.key} {offset}: {one}")


class _Drain:
    def __init__(self, share: "Share", group_id: str, link: Link) -> None:
        self._share = share
        self._world = share.world
        self._group_id = group_id
        self._link = link
        self._got: dict[Place, list[int]] = {}
        self._errors: dict[Place, int] = {}

    def run(self) -> None:
        self._ask(
            ShareGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=MEMBER,
                member_epoch=0,
                subscribed_topic_names=[name for name in TOPICS if name in self._share.logs.topics]
                or ["alpha"],
            ),
            1,
        )
        places = [
            (key.topic_id, key.partition)
            for key in sorted(self._share.journal.stored)
            if key.group_id == self._group_id and key.topic_id in self._share.logs.topics.values()
        ]
        quiet = 0
        for epoch in range(ROUNDS_MAX):
            self._fetch(epoch, places)
            # A log whose start has moved is noticed by a fetch that brings nothing.
            quiet = 0 if self._got else quiet + 1
            if quiet > len(places) or not _is_running(self._share):
                break
        else:
            raise Violation("share: never drained", f"{self._group_id} after {ROUNDS_MAX} rounds")
        for place in places:
            if not self._errors.get(place) and _is_running(self._share):
                self._check_empty(ShareKey(self._group_id, *place))

    def _ask(self, request: Message, version: int) -> Any:
        pending = self._link.send(request, version)
        self._world.settle()
        if not pending.is_done and _is_running(self._share):
            raise Violation("no answer", f"to the last member of {self._group_id}: {request}")
        return pending.response

    def _fetch(self, epoch: int, places: list[Place]) -> None:
        got, self._got = self._got, {}
        named = places if epoch == 0 else list(got)
        response = self._ask(
            ShareFetchRequest(
                group_id=self._group_id,
                member_id=MEMBER,
                share_session_epoch=epoch,
                max_wait_ms=0,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
                topics=[
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    AcknowledgementBatch(
                                        first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT]
                                    )
                                    for offset in got.get((topic_id, index), ())
                                ],
                            )
                        ],
                    )
                    for topic_id, index in named
                ],
            ),
            2,
        )
        if response is None:
            return
        if response.error_code != ErrorCode.NONE:
            raise Violation("share: last member refused", f"{self._group_id}: {response}")
        for topic in response.responses:
            for data in topic.partitions:
                place = topic.topic_id, data.partition_index
                self._errors[place] = data.error_code
                if data.acknowledge_error_code != ErrorCode.NONE:
                    raise Violation(
                        "share: answers of the holder refused", f"{self._group_id} {place}: {data}"
                    )
                taken = self._share.told_delivery(self._group_id, MEMBER, topic.topic_id, data)
                if taken:
                    self._got[place] = [offset for offset, _ in taken]

    def _check_empty(self, key: ShareKey) -> None:
        shadow = next(
            (one for one in self._share.shadows.values() if one.key == key and not one.loaded._is_closed),
            None,
        )
        if shadow is None:
            raise Violation("share: not served", f"{key} was asked for, and is not loaded")
        log = shadow.loaded.partition.log
        if log.damage is not None or (shadow.log is not None and shadow.log.is_damaged):
            return
        end = log.stable_offset if self._share.rules(key.group_id).is_committed_only else log.end_offset
        for offset in range(shadow.start, end):
            if shadow.must_exist(offset):
                raise Violation(
                    "share: never comes",
                    f"{key} {offset} of {shadow.start}..{end}: {shadow.offsets.get(offset)}, {shadow.entry(offset)}",
                )
