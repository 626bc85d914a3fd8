"""Records of `__share_group_state` are printed in the shape of Apache's formatter."""

from headrace.cli.state import as_formatted
from headrace.client.admin.results import ShareStateRecord, StateRecordKind
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.share_state import Snapshot, Update

BATCHES = [StateBatch(366, 366, RecordState.AVAILABLE, 4)]


def record(kind: StateRecordKind, value: Snapshot | Update | None) -> ShareStateRecord:
    return ShareStateRecord(
        kind=kind,
        group_id="my-share-group",
        topic="orders",
        topic_id="9fagJTJNTaa-FwT6umvvCA",
        partition=0,
        value=value,
        state_partition=1,
        offset=2,
        timestamp=3,
    )


def test_the_blog_s_update() -> None:
    value = Update(snapshot_epoch=1, leader_epoch=0, start_offset=366, complete_count=-1, batches=BATCHES)
    assert as_formatted(record(StateRecordKind.UPDATE, value)) == {
        "key": {
            "type": 1,
            "data": {"groupId": "my-share-group", "topicId": "9fagJTJNTaa-FwT6umvvCA", "partition": 0},
        },
        "value": {
            "version": 0,
            "data": {
                "snapshotEpoch": 1,
                "leaderEpoch": 0,
                "startOffset": 366,
                "stateBatches": [
                    {"firstOffset": 366, "lastOffset": 366, "deliveryState": 0, "deliveryCount": 4}
                ],
            },
        },
    }


def test_a_snapshot_has_its_epochs_and_times() -> None:
    value = Snapshot(1, 2, 3, 4, 5, 6, 7, [])
    said = as_formatted(record(StateRecordKind.SNAPSHOT, value))
    assert said["key"]["type"] == 0
    assert said["value"]["data"] == {
        "snapshotEpoch": 1,
        "stateEpoch": 2,
        "leaderEpoch": 3,
        "startOffset": 4,
        "createTimestamp": 6,
        "writeTimestamp": 7,
        "stateBatches": [],
        "deliveryCompleteCount": 5,
    }


def test_a_tombstone_has_no_value() -> None:
    said = as_formatted(record(StateRecordKind.TOMBSTONE, None))
    assert (said["key"]["type"], said["value"]) == (0, None)
