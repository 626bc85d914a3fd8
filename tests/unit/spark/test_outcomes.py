"""The outcome log: what is written is read, a replay replaces, and damage is not taken for "all accepted"."""

from pathlib import Path

import pytest

from headrace.client.delivery import AcknowledgeType
from headrace.spark import locations
from headrace.spark.errors import OutcomeError
from headrace.spark.outcomes import Outcome, OutcomeLog, join, parse_type
from headrace.spark.settle import Acknowledge

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def outcome(first: int, last: int, type: AcknowledgeType = REJECT, reason: str = "") -> Outcome:
    return Outcome("orders", 0, first, last, 1, type, reason)


def test_neighbors_that_are_alike_become_one_and_accepted_ones_are_left_out() -> None:
    given = [
        outcome(5, 5),
        outcome(4, 4),
        outcome(6, 6, RELEASE),
        outcome(7, 7, ACCEPT),
        outcome(3, 3, REJECT, "why"),
    ]
    assert join(given) == [outcome(3, 3, REJECT, "why"), outcome(4, 5), outcome(6, 6, RELEASE)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "deep" / "outcomes")
    log.write(3, [outcome(1, 2, REJECT, "no such käufer"), outcome(9, 9, RELEASE)])
    assert log.read() == [outcome(1, 2, REJECT, "no such käufer"), outcome(9, 9, RELEASE)]


def test_the_folder_of_outcomes_is_safe_from_a_power_cut_before_any_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(locations, "sync_path", synced.append)
    OutcomeLog(tmp_path / "checkpoint" / "outcomes").describe(Acknowledge.COMMIT, None)
    assert synced == [
        tmp_path / "checkpoint" / "outcomes",
        tmp_path / "checkpoint",
        tmp_path,
        *tmp_path.parents,
    ]


def test_a_replayed_micro_batch_replaces_what_it_said_before(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path)
    log.write(3, [outcome(1, 2)])
    log.write(3, [outcome(2, 2)])
    assert log.read() == [outcome(2, 2)]


def test_later_micro_batches_come_last_by_number(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path)
    log.write(10, [outcome(10, 10)])
    log.write(9, [outcome(9, 9)])
    assert [each.first for each in log.read()] == [9, 10]


def test_clearing_leaves_nothing_and_a_missing_folder_says_nothing(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "none")
    assert log.read() == []
    log.clear()
    log.write(1, [outcome(1, 1)])
    (log.path / ".2.77.tmp").write_text("torn")
    log.clear()
    assert list(log.path.iterdir()) == []


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path)
    log.write(1, [outcome(1, 1, REJECT, "x" * 100_000)])
    assert len(log.read()[0].reason) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"v":1,"outcomes":[[1]]}',
        '{"v":1,"outcomes":[["t",0,1,1,1,9,""]]}',
        '{"v":1,"outcomes":[["t",0,"1","1",1,3,""]]}',
        '{"v":1,"outcomes":[["t",0,1,1,null,3,""]]}',
    ],
)
def test_a_damaged_file_is_refused_with_the_cure(tmp_path: Path, text: str) -> None:
    (tmp_path / "4.json").write_text(text)
    with pytest.raises(OutcomeError, match=r"4\.json is damaged.*delete the file"):
        OutcomeLog(tmp_path).read()


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "4.json").write_text('{"v":2,"outcomes":[]}')
    with pytest.raises(OutcomeError, match="newer headrace"):
        OutcomeLog(tmp_path).read()


def test_types_are_read_in_any_case_and_nothing_else() -> None:
    assert [parse_type(value) for value in ("Accept", " RELEASE", "reject", None)] == [
        ACCEPT,
        RELEASE,
        REJECT,
        ACCEPT,
    ]
    with pytest.raises(OutcomeError, match="'retry'; allowed are accept, release and reject"):
        parse_type("retry")


def test_clearing_leaves_what_others_are_writing_in_the_folder(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path)
    log.write(0, [])
    (tmp_path / ".7.123.tmp").touch()
    for name in ("ahead-x.json", ".ahead-x.123.tmp", "source"):
        (tmp_path / name).touch()
    log.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ahead-x.123.tmp", "ahead-x.json", "source"]
