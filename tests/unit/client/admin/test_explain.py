"""Every place that a record can be in is explained, live and as written down."""

from dataclasses import replace

from headrace.client.admin.explain import Explanation, explain, member_name, why_full
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun

VIEW = SharePartitionState(
    group_id="g",
    topic="orders",
    topic_id="x",
    partition=0,
    start_offset=10,
    next_offset=20,
    state_epoch=0,
    leader_epoch=0,
    snapshot_epoch=0,
    delivery_complete_count=0,
    runs=(
        StateRun(10, 11, RecordState.AVAILABLE, 0),
        StateRun(12, 14, RecordState.ACQUIRED, 2, "ann", 5_000, 412_300, 13),
        StateRun(15, 16, RecordState.ACKNOWLEDGED, 1),
        StateRun(17, 18, RecordState.ARCHIVED, 5),
        StateRun(19, 19, RecordState.ARCHIVING, 5),
    ),
    log_start_offset=2,
    log_end_offset=30,
    is_live=True,
    window_max=100,
)
FULL = replace(VIEW, window_max=10, full_since=3 * 3_600_000 + 12 * 60_000, runs=VIEW.runs[1:])
WRITTEN = replace(VIEW, is_live=False, window_max=None, runs=VIEW.runs[:1])


def said(offset: int, view: SharePartitionState = VIEW, members: int | None = 1) -> Explanation:
    return explain(view, offset, delivery_limit=5, names={"ann": "mailer@web-3"}, members=members)


def test_a_held_record_names_its_holder_for_how_long_and_how_often_renewed() -> None:
    assert said(13) == Explanation(
        "acquired",
        "Delivery 2 of at most 5: it is held by mailer@web-3 for 412 s, renewed 13 times; its lock ends in 5 s.",
    )


def test_a_record_behind_a_full_window_names_the_record_that_blocks_it() -> None:
    assert said(25, FULL) == Explanation(
        "waiting",
        "Behind the window, which has been full since 03:12:00 UTC (10 of 10 records). Its oldest record, offset 12, "
        "is held by mailer@web-3 for 412 s, renewed 13 times; its lock ends in 5 s.",
        12,
    )


def test_a_group_whose_members_read_other_partitions_does_not_get_the_record() -> None:
    for offset in (10, 21):
        text = explain(VIEW, offset, members=2, readers=0).text
        assert text.endswith(" No member of the group reads this partition now.")
        assert "No member of" not in explain(VIEW, offset, members=2, readers=1).text
    assert explain(VIEW, 21, members=0, readers=0).text.endswith("The group has no members now.")


def test_a_record_that_nobody_fetched_says_how_many_come_before() -> None:
    assert said(25).text == "No member has fetched this far yet; 5 records come before it."
    assert said(20).text == "No member has fetched this far yet; it is the next one."
    assert said(21, members=0).text.endswith("1 record comes before it. The group has no members now.")


def test_records_in_the_window_and_outside() -> None:
    states = {offset: said(offset).state for offset in (1, 5, 10, 15, 17, 19, 99)}
    assert states == {
        1: "not there",
        5: "settled",
        10: "available",
        15: "acknowledged",
        17: "archived",
        19: "archiving",
        99: "not there",
    }
    assert said(13, replace(VIEW, start_offset=None)).state == "undecided"
    assert said(17).text == "Given up: rejected, or delivered too often (5 of at most 5)."


def test_an_archived_record_with_deliveries_left_was_not_delivered_too_often() -> None:
    view = replace(VIEW, runs=(StateRun(10, 19, RecordState.ARCHIVED, 1),))
    assert said(12, view).text == (
        "Rejected by a member, in delivery 1 of at most 5; or nothing that a member is given: a marker or an aborted "
        "record of a transaction."
    )


def test_a_record_behind_an_open_transaction_waits_for_its_end() -> None:
    view = replace(VIEW, stable_offset=22)
    assert said(21, view).text == "No member has fetched this far yet; 1 record comes before it."
    for offset in (22, 25):
        assert said(offset, view) == Explanation(
            "waiting",
            "A transaction that began at offset 22 is open, and the group reads only committed records "
            "(share.isolation.level): nothing from there on is delivered until it ends.",
        )
    assert "Behind the window" in said(25, replace(FULL, stable_offset=22)).text


def test_what_is_written_down_does_not_know_locks() -> None:
    for offset in (13, 25):
        found = said(offset, WRITTEN, members=0)
        assert found.state == "unknown"
        assert (
            "Only the broker knows locks. The group starts at 10. The group has no members now." in found.text
        )


def test_a_record_that_was_written_as_available_may_be_held_by_now() -> None:
    view = replace(WRITTEN, runs=(StateRun(10, 11, RecordState.AVAILABLE, 1),))
    for members in (1, None):
        assert said(10, view, members=members) == Explanation(
            "unknown",
            "It was written as available, after it was delivered once of at most 5. It waits for a fetch, or a member "
            "holds it. Only the broker knows locks.",
        )
    assert said(10, view, members=0) == Explanation(
        "available",
        "The next member that fetches gets it. It was delivered once of at most 5. The group has no members now.",
    )
    assert said(10, replace(view, is_live=True)).state == "available"


def test_a_group_of_which_nothing_is_written_may_hold_records_all_the_same() -> None:
    view = replace(WRITTEN, start_offset=None, next_offset=None, runs=())
    assert said(3, view).state == "undecided"
    assert (
        "no member has fetched yet, or members hold records and have not acknowledged one"
        in said(3, view).text
    )
    assert "has no start offset here yet" in said(3, replace(view, is_live=True)).text


def test_a_full_window_says_what_holds_it_up_and_others_say_nothing() -> None:
    assert why_full(FULL, names={"ann": "mailer@web-3"}, members=0) == (
        "The window has been full since 03:12:00 UTC (10 of 10 records). Its oldest record, offset 12, is held by "
        "mailer@web-3 for 412 s, renewed 13 times; its lock ends in 5 s. The group has no members now."
    )
    assert why_full(VIEW) is None
    assert why_full(replace(FULL, is_live=False)) is None


def test_a_member_is_named_by_client_id_and_host_once() -> None:
    assert member_name("mailer", "/10.0.0.3") == "mailer@10.0.0.3"
    assert member_name("send@web-3:812", "/10.0.0.3") == "send@web-3:812"
