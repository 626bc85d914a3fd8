"""Advice at start: given when the numbers do not fit, with the numbers and the command."""

from headrace.spark.advice import DELIVERIES, LOCK_MS, RENEWS, WINDOW, advise
from headrace.spark.options import SourceOptions

GOOD = {LOCK_MS: "30000", RENEWS: "true", DELIVERIES: "5", WINDOW: "2000"}


def advice(config: dict[str, str | None], **options: str) -> list[str]:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g", **options}
    return advise(config, SourceOptions.parse(given), partitions=2)


def test_kafkas_defaults_need_none() -> None:
    assert advice(GOOD) == []


def test_without_renewals_a_micro_batch_has_the_locks_time_only() -> None:
    (sentence,) = advice({**GOOD, RENEWS: "false"})
    assert "within 30000 ms" in sentence
    assert "`headrace group config set g share.renew.acknowledge.enable=true`" in sentence
    assert advice({**GOOD, RENEWS: "false"}, acknowledge="handoff") == []


def test_short_locks_are_told() -> None:
    (sentence,) = advice({**GOOD, LOCK_MS: "1000"})
    assert "last 1000 ms" in sentence


def test_a_limit_beyond_the_window_is_told_with_the_window_to_set() -> None:
    (sentence,) = advice(GOOD, maxRecordsPerTrigger="10001")
    assert "2000 records be locked in each of 2 partitions, 4000 in all" in sentence
    assert f"{WINDOW}=5001" in sentence
    assert advice(GOOD, maxRecordsPerTrigger="4000") == []


def test_few_deliveries_are_told() -> None:
    (sentence,) = advice({**GOOD, DELIVERIES: "2"})
    assert "after 2 deliveries" in sentence


def test_a_broker_that_does_not_show_its_settings_gets_none() -> None:
    assert advice({}) == []
    assert advice({WINDOW: None}) == []
