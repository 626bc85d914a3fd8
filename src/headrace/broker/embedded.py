"""`Broker`: a whole broker inside your process, on its own thread and event loop. For tests, demos and small tools.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Without `data_dir` it keeps everything in memory and forgets it at the end. `advance(seconds)` moves its clock.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.broker.clock import ManualClock
from headrace.broker.control import ControlSocket
from headrace.broker.core import BrokerCore
from headrace.broker.server import Server
from headrace.broker.settings import Settings
from headrace.broker.share.intervene import release_record
from headrace.broker.share.view import group_view
from headrace.log.disk import Disk, OsDisk
from headrace.log.layout import INCOMPLETE, META, parse_directory_name
from headrace.log.memory_disk import MemoryDisk
from headrace.log.metadata import MetadataError
from headrace.share.view import SharePartitionState
from headrace.version import __version__

logger = logging.getLogger("headrace.broker")
T = TypeVar("T")
STOP_S_MAX = 60.0
"""Without any progress. A stop with thousands of partitions to sync takes as long as the disk needs."""
MEMORY = ":memory:"


class Broker:
    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, Any] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None or str(data_dir) == MEMORY else Path(data_dir)
        self._host = host
        self._port = port
        address = {"listeners": f"PLAINTEXT://{host}:{port}"} if port else {}
        self._settings = Settings({**address, **(settings or {})})
        self._on_failure = on_failure
        self._clock = ManualClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._stopping: Server | None = None
        self.failure: Exception | None = None

    @property
    def bootstrap_servers(self) -> str:
        core = self._running().core
        return f"{core.host}:{core.port}"

    @property
    def core(self) -> BrokerCore:
        """The broker's inside. Touch it only through `call`, which runs on the broker's own thread."""
        return self._running().core

    def start(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("this Broker has been started already; make a new one to start again")
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="headrace-broker", daemon=True
        )
        try:
            self._thread.start()
            started.result()
        except KeyboardInterrupt:
            started.add_done_callback(lambda _: self._ask_to_stop())  # it may be in the middle of a recovery
            self._thread.join(STOP_S_MAX)
            raise
        except BaseException:
            self._thread.join()
            raise
        return self

    def stop(self) -> None:
        """Stops cleanly; does nothing for a broker that is not running."""
        thread = self._thread
        if self._loop is None or thread is None or not thread.is_alive():
            return
        self._ask_to_stop()
        progress = -1
        while thread.is_alive() and progress != self._progress():
            progress = self._progress()
            thread.join(STOP_S_MAX)
        if thread.is_alive():
            self.failure = self.failure or TimeoutError("the broker is stuck while stopping")
            logger.error(
                "stopping has made no progress for %d s and is given up; the data directory %s is still in use, "
                "and the next start checks it",
                STOP_S_MAX,
                self._data_dir or MEMORY,
            )

    def _progress(self) -> int:
        return self._stopping.progress if self._stopping is not None else 0

    def _ask_to_stop(self) -> None:
        if self._loop is not None and self._stopping is None:  # twice would break off the stop under way
            with contextlib.suppress(RuntimeError):  # it has just closed by itself
                self._loop.call_soon_threadsafe(self._loop.stop)

    def advance(self, seconds: float) -> None:
        """Moves the broker's clock forward; everything that became due has been done when this returns."""
        server = self._running()

        def move() -> None:
            self._clock.advance(seconds)
            server.clock_moved()

        self.call(move)

    def share_state(self, group_id: str) -> dict[tuple[str, int], SharePartitionState]:
        """What the broker knows of a share group now, by topic and partition: locks, their holders, the time left.

        Raises KafkaError (GROUP_ID_NOT_FOUND) if there is no such share group. `Admin.share_state` gives the same for
        any Kafka, from what is written down, and so without locks.
        """
        core = self.core
        return self.call(lambda: group_view(core, group_id))

    def release_record(self, group_id: str, topic: str, partition: int, offset: int) -> str:
        """Takes an acquired record from a holder that is stuck, as if it had released it; returns the holder's id."""
        core = self.core
        return self.call(lambda: release_record(core, group_id, topic, partition, offset))

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function on the broker's thread and returns what it returns."""
        return self.submit(function).result()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """`call` without waiting. A broker that is stopping may leave the Future without an answer."""
        server = self._running()
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)
            server.settle()

        server.loop.call_soon_threadsafe(run)
        return result

    def __enter__(self) -> Self:
        if self._thread is not None and self._server is not None:
            return self  # started before, as in `with Broker().start() as broker:`
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Server:
        if self._server is None or self._loop is None:
            if self._thread is None:
                raise RuntimeError("the broker is not running; use `with Broker() as broker:` or start()")
            if self.failure is not None:
                raise RuntimeError(
                    f"the broker is not running: it has stopped after a failure: {self.failure}"
                )
            raise RuntimeError("the broker is not running: it was stopped; make a new one to start again")
        return self._server

    def _run(self, started: "Future[None]") -> None:
        loop = _new_loop()
        asyncio.set_event_loop(loop)
        server = Server(loop)
        try:
            core = self._open(server)
        except BaseException as error:
            server.close_threads()
            loop.close()
            started.set_exception(error)
            return
        try:
            loop.run_until_complete(server.listen(core, self._host, self._port))
        except BaseException as error:
            loop.run_until_complete(server.stop())
            loop.close()
            started.set_exception(error)
            return
        control = None
        if self._data_dir is not None:
            control = loop.run_until_complete(ControlSocket.open(server, self._data_dir))
        self._loop, self._server = loop, server
        self._announce(core)
        started.set_result(None)
        try:
            loop.run_forever()
        finally:
            self._server, self._stopping = None, server
            if control is not None:
                control.close()
            try:
                loop.run_until_complete(server.stop())
            except Exception as error:
                self.failure = self.failure or error
                logger.critical(
                    "the data directory could not be left clean; the next start checks it: %s", error
                )
            loop.close()
            logger.info("stopped clean=%s", str(self.failure is None).lower())

    def _open(self, server: Server) -> BrokerCore:
        disk: Disk
        if self._data_dir is None:
            disk, metadata_path = MemoryDisk(), None
        else:
            disk = OsDisk(self._data_dir)
            metadata_path = self._data_dir / "metadata.sqlite"
            _require_metadata(disk, metadata_path)
        return BrokerCore(
            self._settings,
            disk=disk,
            metadata_path=metadata_path,
            clock=self._clock,
            runner=server,
            on_failure=self._failed,
        )

    def _failed(self, error: Exception) -> None:
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(error)
        if self._loop is not None and self._stopping is None:
            self._loop.call_soon(self._loop.stop)

    def _announce(self, core: BrokerCore) -> None:
        logger.info(
            "started version=%s data=%s flush=%s listen=%s:%d node=%d cluster=%s",
            __version__,
            self._data_dir or MEMORY,
            self._settings.str("headrace.flush") if self._data_dir is not None else "none",
            core.host,
            core.port,
            core.node_id,
            core.cluster_id,
        )


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _require_metadata(disk: OsDisk, path: Path) -> None:
    """A start without it would set every partition's directory aside as one of no topic."""
    if not path.parent.is_dir() or path.exists():
        return
    found = [name for name in disk.list() if parse_directory_name(name) is not None]
    is_backup = (
        disk.exists(META) and disk.read(META) == INCOMPLETE
    )  # which is refused, too, with another cure
    if found and not is_backup:
        raise MetadataError(
            f"{path} is missing, and nobody knows the topics of {len(found)} partitions beside it. "
            "Bring it back from a backup, or use another directory"
        )
