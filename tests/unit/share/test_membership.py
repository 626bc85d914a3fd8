"""Heartbeats that are malformed (scenario 7 of docs/concepts/share-semantics.md)."""

import pytest

from headrace.share.errors import InvalidRequest
from headrace.share.membership import HeartbeatRequest


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(member_id="", member_epoch=0, subscribed=("t",)),
        HeartbeatRequest(member_id="m" * 37, member_epoch=0, subscribed=("t",)),
        HeartbeatRequest(member_id="m", member_epoch=0),
        HeartbeatRequest(member_id="m", member_epoch=0, subscribed=()),
        HeartbeatRequest(member_id="m", member_epoch=0, subscribed=("t",), rack_id=""),
        HeartbeatRequest(member_id="m", member_epoch=-2),
    ],
)
def test_bad_heartbeats_are_refused(request_: HeartbeatRequest) -> None:
    with pytest.raises(InvalidRequest):
        request_.check()


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(member_id="m" * 36, member_epoch=0, subscribed=("t",)),
        HeartbeatRequest(member_id="m", member_epoch=5),
        HeartbeatRequest(member_id="m", member_epoch=5, subscribed=()),
        HeartbeatRequest(member_id="m", member_epoch=-1, rack_id="r"),
    ],
)
def test_good_heartbeats_are_not(request_: HeartbeatRequest) -> None:
    request_.check()
