"""The metadata store: what it keeps, what a crash leaves, what it refuses to open."""

import os
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.metadata import MetadataError, MetadataStore, StoredTopic, new_uuid
from headrace.wire.acls import acl_of
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


class Opener:
    """Opens stores and closes them all when the test is over; a crash is a store that was not closed before."""

    def __init__(self) -> None:
        self._opened: list[MetadataStore] = []

    def __call__(self, path: Path | str = ":memory:") -> MetadataStore:
        store = MetadataStore(path)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def opened() -> Iterator[Opener]:
    opener = Opener()
    yield opener
    opener.close()


def test_topics_are_there_after_a_crash(opened: Opener, path: Path) -> None:
    store = opened(path)
    store.add_topic(StoredTopic("a", ID, 3, {"retention.ms": "5"}))
    store.add_topic(StoredTopic("b", OTHER_ID, 1))
    store.set_partitions("b", 4)
    assert opened(path).topics() == [
        StoredTopic("a", ID, 3, {"retention.ms": "5"}),
        StoredTopic("b", OTHER_ID, 4),
    ]


def test_a_deleted_topic_is_remembered_until_its_directories_are_gone(opened: Opener, path: Path) -> None:
    store = opened(path)
    store.add_topic(StoredTopic("a", ID, 3, {"retention.ms": "5"}))
    store.delete_topic("a")
    found = opened(path)
    assert found.topics() == []
    assert found.deleted_topics() == [StoredTopic("a", ID, 3)]
    found.forget_deleted(ID)
    assert found.deleted_topics() == []


def test_a_topic_that_comes_back_under_its_old_name_has_none_of_the_old_settings(opened: Opener) -> None:
    store = opened()
    store.add_topic(StoredTopic("a", ID, 1, {"retention.ms": "5"}))
    store.delete_topic("a")
    store.add_topic(StoredTopic("a", OTHER_ID, 1))
    assert store.topics() == [StoredTopic("a", OTHER_ID, 1)]
    assert [row.id for row in store.deleted_topics()] == [ID]


def test_settings_of_a_resource_are_replaced_as_a_whole(opened: Opener) -> None:
    store = opened()
    store.set_configs("group", "g", {"a": "1", "b": "2"})
    store.set_configs("group", "g", {"b": "3"})
    store.set_configs("broker", "", {"c": "4"})
    assert store.configs("group") == {"g": {"b": "3"}}
    assert store.configs("broker") == {"": {"c": "4"}}


def test_producer_ids_are_never_handed_out_twice_even_after_a_crash(opened: Opener, path: Path) -> None:
    store = opened(path)
    assert store.allocate_producer_ids(1000) == range(1000)
    assert store.allocate_producer_ids(5) == range(1000, 1005)
    assert opened(path).allocate_producer_ids(1) == range(1005, 1006)


def test_the_cluster_id_is_22_characters_and_stays(opened: Opener, path: Path) -> None:
    store = opened(path)
    assert len(store.cluster_id) == 22
    assert opened(path).cluster_id == store.cluster_id
    assert opened().cluster_id != store.cluster_id


def test_a_transaction_that_fails_changes_nothing(opened: Opener) -> None:
    store = opened()

    def fail_in_the_middle() -> None:
        with store.transaction():
            store.add_topic(StoredTopic("a", ID, 1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert store.topics() == []
    store.add_topic(StoredTopic("a", ID, 1))
    assert len(store.topics()) == 1


def test_changes_are_counted(opened: Opener, path: Path) -> None:
    store = opened(path)
    before = store.changes
    store.set_configs("group", "g", {"a": "1"})
    with store.transaction():
        store.set_configs("group", "h", {"a": "1"})
        store.set_configs("group", "i", {"a": "1"})
    assert store.changes == before + 2


def test_a_store_of_a_newer_version_is_refused_with_a_clear_error(opened: Opener, path: Path) -> None:
    opened(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(
        MetadataError, match=r"has format 99, written by a newer Headrace; this one reads up to 1"
    ):
        opened(path)


def test_a_file_that_is_no_store_is_refused_with_its_name(opened: Opener, path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(MetadataError, match=r"metadata\.sqlite cannot be read"):
        opened(path)


def test_a_full_disk_is_a_storage_error_and_changes_nothing(opened: Opener, path: Path) -> None:
    store = opened(path)
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(KafkaError) as caught:
        store.set_configs("group", "g", {"a": "x" * 1_000_000})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.configs("group") == {}


def after_power_cut(path: Path, *, wal_size: int | None = None) -> Path:
    """A copy of the files as a power cut leaves them: the WAL ends at some byte."""
    copy = path.parent / f"copy-{uuid.uuid4().hex}" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    wal = Path(f"{path}-wal").read_bytes()
    Path(f"{copy}-wal").write_bytes(wal[:wal_size])
    return copy


def wal_size(path: Path) -> int:
    return os.stat(f"{path}-wal").st_size


def names(store: MetadataStore) -> list[str]:
    return [row.name for row in store.topics()]


def test_a_commit_syncs_nothing_and_says_so(opened: Opener, path: Path) -> None:
    store = opened(path)
    assert store._database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert store._database.execute("PRAGMA synchronous").fetchone()[0] == 1
    assert store._database.execute("PRAGMA wal_autocheckpoint").fetchone()[0] == 0
    assert not store.is_dirty
    store.add_topic(StoredTopic("a", ID, 1))
    assert store.is_dirty
    store.sync()
    assert not store.is_dirty


def test_the_wal_has_its_header_before_the_first_commit(opened: Opener, path: Path) -> None:
    """SQLite syncs the header when it writes it, and that must not be on the loop."""
    store = opened(path)
    assert wal_size(path) > 0
    store.add_topic(StoredTopic("a", ID, 1))
    store.checkpoint()
    assert 0 < wal_size(path) < 20_000


def test_a_power_cut_leaves_the_first_commits_and_all_that_were_synced(opened: Opener, path: Path) -> None:
    store = opened(path)
    synced = wal_size(path)
    sizes = [synced]
    for number in range(6):
        store.add_topic(StoredTopic(f"t{number}", new_uuid(), 1))
        sizes.append(wal_size(path))
        if number == 2:
            store.sync()
            synced = wal_size(path)
    for cut in range(synced, sizes[-1] + 1, 1000):
        found = names(opened(after_power_cut(path, wal_size=cut)))
        assert found == [f"t{number}" for number in range(sum(size <= cut for size in sizes[1:]))]
        assert len(found) >= 3


def test_a_checkpoint_empties_the_wal_and_loses_nothing(opened: Opener, path: Path) -> None:
    store = opened(path)
    for number in range(20):
        store.set_configs("group", f"g{number}", {"a": "x" * 300_000})
    assert store.wants_checkpoint
    store.checkpoint()
    assert not store.wants_checkpoint
    assert not store.is_dirty
    store.add_topic(StoredTopic("later", ID, 1))
    cut = opened(after_power_cut(path, wal_size=0))
    assert len(cut.configs("group")) == 20
    assert names(cut) == []
    assert names(opened(after_power_cut(path))) == ["later"]


def test_the_loop_writes_on_while_a_worker_syncs_and_checkpoints(opened: Opener, path: Path) -> None:
    store = opened(path)
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                store.sync()
                store.checkpoint()
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    for number in range(300):
        store.add_topic(StoredTopic(f"t{number:03}", new_uuid(), 1))
    stop.set()
    worker.join()
    assert not failures
    store.sync()
    assert names(opened(after_power_cut(path))) == [f"t{number:03}" for number in range(300)]


def test_a_store_in_memory_is_never_dirty(opened: Opener) -> None:
    store = opened()
    store.add_topic(StoredTopic("a", ID, 1))
    assert not store.is_dirty
    assert not store.wants_checkpoint
    store.sync()


def test_whoever_wants_to_know_is_told_of_each_commit(opened: Opener) -> None:
    store = opened()
    told: list[int] = []
    store.on_commit = lambda: told.append(len(store.topics()))
    with store.transaction():
        store.add_topic(StoredTopic("a", ID, 1))
        store.add_topic(StoredTopic("b", OTHER_ID, 1))
    assert told == [2]


def test_new_ids_never_begin_with_a_dash() -> None:
    assert not any(uuid_text(new_uuid()).startswith("-") for _ in range(500))


def test_a_store_from_before_acls_gets_a_table_for_them(opened: Opener, path: Path) -> None:
    opened(path).close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE acls")
    database.close()
    acl = acl_of(2, "orders", 3, "User:alice", "*", 3, 3)
    store = opened(path)
    assert store.acls() == []
    store.change_acls(add=[acl])
    assert opened(path).acls() == [acl]


def test_a_store_keeps_its_login_secret_and_an_old_one_gets_it(opened: Opener, path: Path) -> None:
    first = opened(path).login_secret
    assert len(first) == 32
    assert opened(path).login_secret == first
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM facts WHERE name = 'login_secret'")
    database.close()
    second = opened(path).login_secret
    assert second != first
    assert opened(path).login_secret == second
