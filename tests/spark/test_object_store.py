"""Checkpoints in a real object store: Spark writes its own by s3a, and the source keeps its notes beside them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from headrace.spark import locations
from headrace.spark.ahead_notes import left_behind, notes_of
from headrace.spark.checkpoint import claim
from headrace.spark.errors import CheckpointError
from headrace.spark.locations import Location, ObjectPath, locate, write_durably
from headrace.spark.outcomes import OutcomeLog
from headrace.spark.runs import RunSet
from headrace.spark.settle import Acknowledge
from tests.object_store import BUCKET, ObjectStore, object_store
from tests.spark.conftest import Queue, wait_for
from tests.spark.test_crash import AHEAD_KILLS, COMMIT_KILLS, HANDOFF_KILLS, Program, kept

pytestmark = pytest.mark.needs_object_store
RECORDS = 600
MEMBER = "an-id_of_22_characters"
AHEAD = {"seq": 3, "some": "runs"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def folder(store: ObjectStore, unique: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectPath]:
    """A folder in the store, for this process."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    locations._files_of.cache_clear()
    found = locate(f"s3a://{BUCKET}/{unique}/share-outcomes")
    assert isinstance(found, ObjectPath)
    yield found
    locations._files_of.cache_clear()


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("acknowledge", "kills", "ahead"),
    [
        pytest.param("commit", ["sink@1"], 0, id="commit-with-outcomes"),
        pytest.param("handoff", ["task@2"], 350, id="handoff-ahead"),
        *(
            pytest.param(mode, kills, ahead, id=name, marks=pytest.mark.thorough)
            for mode, kills, ahead, name in (
                ("commit", COMMIT_KILLS, 0, "commit-with-outcomes-all"),
                ("handoff", AHEAD_KILLS, 350, "handoff-ahead-all"),
                ("handoff", kept(AHEAD_KILLS), 350, "handoff-ahead-locks-kept-all"),
                ("handoff", HANDOFF_KILLS, 0, "handoff-all"),
            )
        ),
    ],
)
def test_every_record_has_one_effect_wherever_the_query_is_killed(
    queue: Queue, store: ObjectStore, acknowledge: str, kills: list[str], ahead: int
) -> None:
    """With outcomes, one record in ten is rejected, and has a dead letter; another one is released twice."""
    queue.send(RECORDS)
    has_outcomes = acknowledge == "commit"
    letters = f"{queue.topic}.dead" if has_outcomes else None
    if letters is not None:
        with queue.admin() as admin:
            admin.create_topic(letters)
    with Program(
        queue,
        acknowledge,
        ahead=ahead,
        has_outcomes=has_outcomes,
        dead_letter_topic=letters,
        store=store,
    ) as program:
        program.run_to_the_end(kills)
        assert program.effects() == [(number, 1) for number in range(RECORDS)]
        wait_for(lambda: queue.lag() == 0)
    if letters is not None:
        with queue.admin() as admin:
            found = admin.dead_letters(letters).letters
        rejected = {(letter.source_partition, letter.source_offset) for letter in found}
        assert len(rejected) == RECORDS // 10


def test_a_note_is_replaced_listed_and_removed(folder: ObjectPath) -> None:
    note = folder / "1.json"
    assert not note.exists()
    assert list(folder.glob("*")) == []
    with pytest.raises(FileNotFoundError):
        note.read_text()
    for text in ("first", "second, with an \u00e4"):
        write_durably(note, text)
        assert note.read_text() == text
    write_durably(folder / "10.json", "")
    assert sorted(path.name for path in folder.glob("[0-9]*.json")) == ["1.json", "10.json"]
    assert [path.name for path in folder.parent.glob("*")] == ["share-outcomes"]
    note.unlink()
    note.unlink(missing_ok=True)
    assert not note.exists()
    with pytest.raises(FileNotFoundError):
        note.unlink()


def test_outcomes_are_kept_and_cleared(folder: ObjectPath) -> None:
    log = OutcomeLog(folder, reader=MEMBER)
    log.describe(Acknowledge.COMMIT, "dead")
    assert OutcomeLog(folder, reader=MEMBER).described() == (Acknowledge.COMMIT, "dead")
    log.write(0, [])
    log.keep(1, RunSet(), [], is_copied=True)
    assert log.kept(1, RunSet()) == ([], True)
    log.clear()
    assert sorted(path.name for path in folder.glob("*")) == [
        f"settled-{MEMBER}.json",
        f"source-{MEMBER}.json",
    ]


def test_a_reader_that_was_succeeded_accepts_nothing_any_more(folder: ObjectPath) -> None:
    first = notes_of(folder, MEMBER)
    assert not first.exists()
    assert first.open() is None
    first.write(AHEAD)
    second = notes_of(folder, MEMBER)
    assert second.exists()
    assert second.open() == AHEAD
    with pytest.raises(CheckpointError, match="Another reader uses"):
        first.write({"what": "the first one would accept"})
    second.write({"seq": 4})
    third = notes_of(folder, MEMBER)
    assert third.open() == {"seq": 4}
    for notes in (first, second, third):
        notes.close()


def test_what_a_source_that_is_gone_had_accepted_ahead_is_seen_and_that_of_a_live_one_is_not(
    folder: ObjectPath,
) -> None:
    other = notes_of(folder, MEMBER)
    other.open()
    other.write(AHEAD)
    assert list(left_behind(folder, "another")) == []
    other.close()
    assert [ahead for _, ahead in left_behind(folder, "another")] == [AHEAD]
    assert list(left_behind(folder, MEMBER)) == []


def test_what_was_accepted_ahead_moves_with_a_checkpoint_to_a_store_and_back(
    folder: ObjectPath, tmp_path: Path
) -> None:
    local = tmp_path / "share-outcomes"
    _open_and_write(local, None, AHEAD)
    _copy(local, folder)
    _open_and_write(folder, AHEAD, {"seq": 4})
    back = tmp_path / "back"
    back.mkdir()
    _copy(folder, back)
    _open_and_write(back, {"seq": 4}, {"seq": 5})
    _open_and_write(back, {"seq": 5}, {"seq": 6})
    assert [path.name for path in back.glob("*.json")] == [f"ahead-{MEMBER}.json"]


def _open_and_write(folder: Location, found: object, ahead: dict[str, object]) -> None:
    notes = notes_of(folder, MEMBER)
    try:
        assert notes.open() == found
        notes.write(ahead)
    finally:
        notes.close()


def _copy(source: Location, target: Location) -> None:
    for path in source.glob("*.json"):
        write_durably(target / path.name, path.read_text("utf-8"))


def test_a_reader_that_accepts_ahead_has_the_same_member_id_in_its_next_life(folder: ObjectPath) -> None:
    assert claim(folder, "reader", is_alone=False) == (None, None)
    _, member_id = claim(folder, "reader", is_alone=True)
    assert claim(folder, "reader", is_alone=True) == (None, member_id)
    assert member_id is not None
    assert claim(folder, "reader", is_alone=False) == (None, None)
    notes_of(folder, member_id).open()
    assert claim(folder, "reader", is_alone=False) == (None, member_id)


def test_a_store_that_does_not_answer_is_named_with_the_cure(
    folder: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    locations._files_of.cache_clear()
    with pytest.raises(CheckpointError, match=rf"{folder}/x could not be written .* AWS_ENDPOINT_URL"):
        write_durably(folder / "x", "text")


def test_nothing_but_whole_notes_is_left_in_the_store(folder: ObjectPath) -> None:
    notes = notes_of(folder, MEMBER)
    notes.open()
    for number in range(3):
        notes.write({"seq": number})
    notes.close()
    found = folder._files.get_file_info(FileSelector(folder._key, recursive=True))
    assert sorted(each.base_name for each in found) == sorted(
        [f"taken-{MEMBER}.owner", Path(notes.where).name]
    )
    assert json.loads((folder / Path(notes.where).name).read_text())["ahead"] == {"seq": 2}
