"""The options and rows of the tables, without a broker."""

import pytest

from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.spark.errors import OptionError
from headrace.spark.tables import (
    DEAD_LETTERS,
    LETTERS,
    RANGES,
    RECORDS,
    STATE,
    KafkaShareState,
    Range,
    TableOptions,
    ranges_of,
    spark_schema,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def state(start: int | None, *runs: StateRun, log: tuple[int, int]) -> SharePartitionState:
    return SharePartitionState(
        group_id="g",
        topic="t",
        topic_id="id",
        partition=0,
        start_offset=start,
        next_offset=None,
        state_epoch=0,
        leader_epoch=0,
        snapshot_epoch=0,
        delivery_complete_count=None,
        runs=runs,
        log_start_offset=log[0],
        log_end_offset=log[1],
        is_live=False,
    )


def test_what_nobody_has_acknowledged_is_open_between_and_behind_what_is_written_down() -> None:
    runs = [
        StateRun(3, 5, RecordState.AVAILABLE, 2),
        StateRun(8, 8, RecordState.ACKNOWLEDGED, 1),
    ]
    assert list(ranges_of(state(2, *runs, log=(0, 12)))) == [
        Range(2, 2, "open", None),
        Range(3, 5, "available", 2),
        Range(6, 7, "open", None),
        Range(8, 8, "acknowledged", 1),
        Range(9, 11, "open", None),
    ]


def test_what_the_log_has_lost_and_what_is_settled_is_left_out() -> None:
    runs = [StateRun(0, 5, RecordState.AVAILABLE, 2)]
    assert list(ranges_of(state(0, *runs, log=(4, 6)))) == [Range(4, 5, "available", 2)]
    assert list(ranges_of(state(6, *runs, log=(0, 6)))) == []
    assert list(ranges_of(state(None, log=(0, 6)))) == [], "where it will start is not decided"


def test_every_column_has_a_type_of_sparks() -> None:
    assert all(map(spark_schema, (RANGES, RECORDS, DEAD_LETTERS)))
    assert "`firstOffset` bigint" in KafkaShareState(dict(SERVERS)).schema()
    assert "`value` binary" in KafkaShareState({**SERVERS, "includeRecords": "true"}).schema()


def test_options_are_lists_of_names() -> None:
    options = TableOptions.parse({**SERVERS, "groups": "a, b,a", "topics": "t"}, STATE)
    assert (options.groups, options.topics) == (("a", "b"), ("t",))
    assert TableOptions.parse({**SERVERS, "maxLetters": "5"}, LETTERS).letters_max == 5


@pytest.mark.parametrize(
    ("given", "name", "said"),
    [
        ({}, STATE, r"kafka\.bootstrap\.servers is missing"),
        ({**SERVERS, "kafka.group.id": "g"}, STATE, r'does not join a group.*\.option\("groups"'),
        ({**SERVERS, "includeRecords": "maybe"}, STATE, "allowed are true and false"),
        ({**SERVERS, "maxLetters": "5"}, STATE, "kafka-share-state has no option maxLetters"),
        ({**SERVERS, "maxLetters": "0"}, LETTERS, "allowed are whole numbers from 1"),
        ({**SERVERS, "groups": "g"}, LETTERS, "kafka-share-dead-letters has no option groups"),
        ({**SERVERS, "kafka.request.timeout": "1"}, LETTERS, r"did you mean kafka\.request\.timeout\.ms"),
    ],
)
def test_a_wrong_option_is_refused_with_the_cure(given: dict[str, str], name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        TableOptions.parse(given, name)
