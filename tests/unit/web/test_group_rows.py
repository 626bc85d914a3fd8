"""What a survey tells of a group becomes a row: lag, what it has settled, where its oldest records are."""

from headrace.broker.share.view import WindowFigures
from headrace.client.admin.health import HealthLimits
from headrace.client.admin.results import GroupListing
from headrace.client.admin.survey import GroupPlace, GroupSurvey, done_of, lag_of
from headrace.client.delivery import TopicPartition
from headrace.client.oldest import Standing, standings_of
from headrace.web.group_rows import LiveFigures, group_row, live_figures, with_live_lags
from headrace.wire.enums import GroupState, GroupType

ENDS = {("orders", 0): 100, ("orders", 1): 50}


def survey(kind: GroupType, **places: GroupPlace) -> GroupSurvey:
    listing = GroupListing("g", kind, GroupState.STABLE, kind.value)
    return GroupSurvey(
        listing=listing,
        members=1,
        places={TopicPartition("orders", int(name[1:])): place for name, place in places.items()},
    )


def test_a_share_groups_lag_is_what_its_coordinator_tells() -> None:
    share = survey(GroupType.SHARE, p0=GroupPlace(90, 7), p1=GroupPlace(50, 0))
    assert (lag_of(share, ENDS), done_of(share, ENDS)) == (7, 143)
    assert standings_of(share, ENDS) == {Standing("orders", 0, 90): 7}


def test_a_share_group_that_has_not_begun_has_no_count_of_settled_records() -> None:
    assert done_of(survey(GroupType.SHARE, p0=GroupPlace(None, None)), ENDS) is None
    assert lag_of(survey(GroupType.SHARE), ENDS) == 0


def test_a_lag_that_no_coordinator_knows_is_unknown() -> None:
    nothing_settled = survey(GroupType.SHARE, p0=GroupPlace(None, None), p1=GroupPlace(None, None))
    assert lag_of(nothing_settled, ENDS) is None
    partly = survey(GroupType.SHARE, p0=GroupPlace(None, None), p1=GroupPlace(20, 30))
    assert lag_of(partly, ENDS) == 30


def test_the_broker_tells_the_lag_of_a_group_that_has_settled_nothing_yet() -> None:
    share = survey(GroupType.SHARE, p0=GroupPlace(None, None), p1=GroupPlace(20, 30))
    windows = [
        WindowFigures("g", "orders", 0, 40, 60, 2000, 0, 60),
        WindowFigures("g", "orders", 1, 20, 30, 2000, 0, 29),  # the coordinator's answer counts
        WindowFigures("deleted meanwhile", "orders", 1, 20, 30, 2000, 0, 29),
    ]
    known = with_live_lags({"g": share}, windows)
    assert list(known) == ["g"]
    assert (lag_of(known["g"], ENDS), done_of(known["g"], ENDS)) == (90, 60)
    assert known["g"].places[TopicPartition("orders", 0)] == GroupPlace(40, 60)


def test_a_consumer_groups_lag_is_the_distance_to_the_ends() -> None:
    consumer = survey(GroupType.CLASSIC, p0=GroupPlace(60, None), p1=GroupPlace(50, None))
    assert (lag_of(consumer, ENDS), done_of(consumer, ENDS)) == (40, 110)
    assert standings_of(consumer, ENDS) == {Standing("orders", 0, 60): 40}
    assert lag_of(survey(GroupType.CONSUMER), ENDS) is None


def test_the_fullest_window_counts_and_records_near_the_limit_are_added_up() -> None:
    windows = [
        WindowFigures("g", "orders", 0, 0, 10, 20, 1, 10),
        WindowFigures("g", "orders", 1, 0, 20, 20, 2, 20),
    ]
    assert live_figures(windows) == {"g": LiveFigures(window_share=1.0, near_limit=3, in_flight=30)}


def test_a_row_holds_the_verdict_in_words() -> None:
    health, row = group_row(
        survey(GroupType.SHARE, p0=GroupPlace(90, 7)),
        lag=7,
        lags=[(0, 7), (1, 7), (2, 7)],
        rate_done=0.0,
        oldest_age_s=61.0,
        lock_timeouts=None,
        dead_letters=0,
        live=LiveFigures(window_share=1.0, in_flight=10),
        limits=HealthLimits(),
    )
    assert (row.level, row.trend, row.drain, row.drain_s) == (
        "critical",
        "steady",
        "never at this rate",
        None,
    )
    assert row.reasons == ("Window full: nothing new is delivered", "Oldest record has waited 1 min 1 s")
    assert health.rank[0] == -2
