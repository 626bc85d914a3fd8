"""`Broker` in trouble: a start that fails leaves nothing behind, a stop ends what it can, misuse is told apart."""

import asyncio
import logging
import socket
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.broker import embedded
from headrace.broker.call import Call
from headrace.broker.connection import Connection
from headrace.broker.embedded import NotRunningError
from headrace.broker.handlers import fetch
from headrace.broker.later import Later
from headrace.broker.server import Server
from headrace.log import disk as disk_module
from headrace.log.layout import CLEAN_SHUTDOWN
from headrace.log.metadata import MetadataError
from headrace.log.reading import LogReader
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.records import NewRecord, build_batch


def threads() -> set[threading.Thread]:
    """Of brokers; those of session fixtures may be among them, so compare with what was there before."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("headrace")}


def set_format(data_dir: Path, version: int) -> None:
    with sqlite3.connect(data_dir / "metadata.sqlite") as database:
        database.execute(f"PRAGMA user_version={version}")
    database.close()


def test_a_start_that_fails_leaves_the_directory_free_and_clean(tmp_path: Path) -> None:
    before = threads()
    with Broker(data_dir=tmp_path) as broker:
        broker.call(lambda: broker.core.topics.create("orders", partitions=1, configs={}))
    set_format(tmp_path, 99)
    with pytest.raises(MetadataError, match="newer Headrace") as refusal:
        Broker(data_dir=tmp_path).start()
    assert threads() <= before
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    set_format(tmp_path, 1)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.call(lambda: broker.core.topics.get("orders")) is not None
    del refusal  # it kept the failed start's frames, and with them its lock, alive until here


def test_a_broker_that_was_stopped_says_so() -> None:
    broker = Broker()
    with broker:
        pass
    broker.stop()
    with pytest.raises(RuntimeError, match="it was stopped; make a new one"):
        _ = broker.bootstrap_servers
    with pytest.raises(RuntimeError, match="started already"), broker:
        pass


def test_a_call_that_the_ending_loop_drops_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that stops drops the calls that it has not begun, and takes no more once it is closed."""
    calls: list[Future[None]] = []
    with Broker() as broker:
        server = broker._running()
        monkeypatch.setattr(broker, "_running", lambda: server)  # as for a thread that looked before the stop

        def call_again() -> None:
            calls.append(broker.submit(lambda: None))
            server.loop.call_soon(call_again)

        broker.call(call_again)
    calls.append(broker.submit(lambda: None))
    assert all(call.done() for call in calls)
    assert calls[0].result(0) is None
    for call in calls[-2:]:
        with pytest.raises(NotRunningError, match="it was stopped"):
            call.result(0)
    assert not broker._calls


def test_a_canceled_call_is_not_made() -> None:
    made: list[str] = []
    go_on = threading.Event()
    with Broker() as broker:
        broker.submit(go_on.wait)
        canceled = broker.submit(lambda: made.append("canceled"))
        assert canceled.cancel()
        go_on.set()
        broker.call(lambda: made.append("next"))
    assert made == ["next"]


def test_a_second_request_to_stop_does_not_interrupt_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        server = broker._running()
        stop = server.stop

        async def stop_twice() -> None:
            broker._ask_to_stop()
            await asyncio.sleep(0)
            await stop()

        monkeypatch.setattr(server, "stop", stop_twice)
        server.loop.call_soon_threadsafe(broker._ask_to_stop)
    assert broker.failure is None
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_stop_that_cannot_leave_cleanly_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads()
    with Broker(data_dir=tmp_path) as broker:

        def refuse(**_: Any) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(broker.core.logs, "_leave_cleanly", refuse)
    assert str(broker.failure) == "no space left on device"
    assert threads() <= before


def test_background_work_that_has_not_begun_does_not_hold_up_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, closing, ran = threading.Event(), threading.Event(), []

    def long_work() -> None:
        begun.set()
        assert closing.wait(30)

    with Broker(data_dir=tmp_path) as broker:
        server = broker._running()
        shut_down = server._cleaner.shutdown

        def shut_down_and_say(wait: bool = True, *, cancel_futures: bool = False) -> None:
            shut_down(wait=False, cancel_futures=cancel_futures)
            closing.set()
            shut_down(wait=wait)

        monkeypatch.setattr(server._cleaner, "shutdown", shut_down_and_say)
        server.run_slow(long_work, lambda _: None)
        server.run_slow(lambda: ran.append("late"), lambda _: None)
        assert begun.wait(10)
    assert ran == []


def test_a_sync_that_ends_while_the_broker_stops_starts_no_other(tmp_path: Path) -> None:
    complaints: list[dict[str, Any]] = []
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        release.wait(10)

    with Broker(data_dir=tmp_path) as broker:
        server = broker._running()
        broker.call(lambda: server.loop.set_exception_handler(lambda _, context: complaints.append(context)))
        broker.call(lambda: server.run(slow, lambda _: server.run(slow, lambda _: None)))
        assert begun.wait(10)
        threading.Timer(0.2, release.set).start()
    assert complaints == []


def test_clients_are_told_the_address_from_the_first_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash clients are at the door before the broker is: none may be told port 0."""
    told: list[tuple[str, int]] = []
    opened = Server.opened

    def note(server: Server, connection: Connection) -> None:
        told.append(server.core.address_of("PLAINTEXT"))
        opened(server, connection)

    class Door:
        """The listener; its first client is there as soon as it serves."""

        def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Connection]) -> None:
            self.sockets = [socket.create_server(("127.0.0.1", 0))]
            self._loop, self._make = loop, make

        async def start_serving(self) -> None:
            client = socket.create_connection(self.sockets[0].getsockname())
            accepted, _ = self.sockets[0].accept()
            await self._loop.connect_accepted_socket(self._make, accepted)
            client.close()

        def close(self) -> None:
            self.sockets[0].close()

    async def create_door(
        make: Callable[[], Connection], *_: Any, start_serving: bool = True, **__: Any
    ) -> Door:
        door = Door(asyncio.get_running_loop(), make)
        if start_serving:
            await door.start_serving()
        return door

    class Loop(asyncio.SelectorEventLoop):
        create_server = staticmethod(create_door)  # type: ignore[assignment]

    monkeypatch.setattr(Server, "opened", note)
    monkeypatch.setattr("headrace.broker.embedded.new_event_loop", Loop)
    with Broker() as broker:
        assert told == [broker.core.address_of("PLAINTEXT")]
        assert told[0][1] > 0


def test_a_parked_fetch_whose_read_fails_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = []
    with Broker() as broker:

        def park() -> None:
            topic = broker.core.topics.create("orders", partitions=1, configs={})
            request = FetchRequest(
                max_wait_ms=60_000,
                min_bytes=1,
                max_bytes=1000,
                topics=[
                    FetchTopic(
                        topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
                    )
                ],
            )
            parked = fetch.handle(broker.core, request, Call(api_version=11))
            assert isinstance(parked, Later)
            parked.then(lambda _: None, failures.append)

            def broken(*_: Any, **__: Any) -> None:
                raise OSError("input/output error")

            monkeypatch.setattr(LogReader, "bytes_from", broken)
            monkeypatch.setattr(LogReader, "read", broken)
            broker.core.appended(topic.partitions[0])

        broker.call(park)
        broker.call(lambda: None)
        assert len(broker.core.parked) == 0
        assert [str(error) for error in failures] == ["input/output error"]
        answer = broker.core.failed(FetchRequest(), Call(api_version=11), failures[0])
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]


def write_to_every_partition(broker: Broker, topic: str, partitions: int) -> None:
    def write() -> None:
        made = broker.core.topics.create(topic, partitions=partitions, configs={})
        data = build_batch([NewRecord(None, b"x", (), 0)])
        for partition in made.partitions:
            partition.log.append(data, now_ms=0)

    broker.call(write)


def test_a_stop_syncs_many_logs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(data_dir=tmp_path).start()
    write_to_every_partition(broker, "orders", 40)
    sync, waiting, are_four = disk_module.OsFile.sync, [], threading.Event()

    def sync_with_others(file: disk_module.OsFile) -> None:
        if threading.current_thread().name.startswith("headrace-sync"):
            waiting.append(file)
            if len(waiting) >= 4:
                are_four.set()
            assert are_four.wait(30), "nobody else syncs"
        sync(file)

    monkeypatch.setattr(disk_module.OsFile, "sync", sync_with_others)
    broker.stop()
    assert are_four.is_set()
    assert broker.failure is None
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_stop_that_is_stuck_is_a_failure_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(data_dir=tmp_path).start()
    write_to_every_partition(broker, "orders", 1)
    go_on, sync = threading.Event(), disk_module.OsFile.sync

    def stuck(file: disk_module.OsFile) -> None:
        go_on.wait()
        sync(file)

    monkeypatch.setattr(disk_module.OsFile, "sync", stuck)
    monkeypatch.setattr(embedded, "STOP_S_MAX", 0.05)
    with caplog.at_level(logging.ERROR, "headrace.broker"):
        broker.stop()
    assert isinstance(broker.failure, TimeoutError)
    assert "no progress" in caplog.text
    go_on.set()
    monkeypatch.setattr(embedded, "STOP_S_MAX", 60)
    broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
