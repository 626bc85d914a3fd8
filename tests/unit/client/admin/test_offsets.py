"""Goal: places in a log are named without doubt; what is in doubt is refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.client.admin.offsets import as_timestamp, by_topic
from headrace.wire.enums import OffsetSpec


def test_names_are_the_numbers_of_the_wire() -> None:
    assert [as_timestamp(spec) for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST)] == [-1, -2]
    assert as_timestamp(OffsetSpec.MAX_TIMESTAMP) == -3


def test_times_are_milliseconds_in_any_zone() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert as_timestamp(noon) == 1_767_268_800_000
    assert as_timestamp(noon.astimezone(timezone(timedelta(hours=5)))) == 1_767_268_800_000
    assert as_timestamp(1_767_268_800_000) == 1_767_268_800_000


def test_a_time_without_a_zone_is_refused_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"2026-01-01T00:00:00 has no time zone; use \.astimezone\(\)"):
        as_timestamp(datetime(2026, 1, 1))


def test_a_number_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the time must be milliseconds since 1970, .* got -9"):
        as_timestamp(-9)


def test_partitions_are_gathered_by_topic() -> None:
    assert by_topic([("a", 1), ("b", 0), ("a", 0)]) == {"a": [1, 0], "b": [0]}
