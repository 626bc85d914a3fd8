"""`Broker`: a whole broker inside your process, on its own thread and event loop. For tests, demos and small tools.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Without `data_dir`, it keeps everything in memory. `advance(seconds)` moves its clock.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.base.loops import new_event_loop
from headrace.broker.clock import ManualClock
from headrace.broker.control import ControlSocket
from headrace.broker.core import BrokerCore
from headrace.broker.loop_lag import LoopLag
from headrace.broker.security.announcing import announce, announce_doubts
from headrace.broker.security.listeners import BrokerListener, plain_listener, read_listeners
from headrace.broker.security.sasl.logins import check_logins
from headrace.broker.security.tls import make_context
from headrace.broker.security.users import NewScramUser, both_mechanisms
from headrace.broker.server import Server
from headrace.broker.settings import Settings
from headrace.broker.share.intervene import release_record
from headrace.broker.share.view import group_view
from headrace.log.disk import FILE_MODE, Disk, OsDisk
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


class NotRunningError(RuntimeError):
    """The broker was not started, or it has stopped."""


class Broker:
    """A broker on a thread of this process. Use it as a context manager, or call `start` and `stop`.

    `data_dir`: the data directory; None keeps everything in memory.
    `settings`: broker settings by Kafka's names.
    `users`: names and passwords that are added for SCRAM, unless the users exist.
    `on_failure`: called with the exception if the broker stops because of a failure.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, Any] | None = None,
        users: Mapping[str, str] | Iterable[NewScramUser] = (),
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None or str(data_dir) == MEMORY else Path(data_dir)
        address = {"listeners": f"PLAINTEXT://{host}:{port}"} if port else {}
        given = {**address, **(settings or {})}
        self._settings = Settings(given)
        self._listeners = read_listeners(self._settings)
        if "listeners" not in given:
            self._listeners = [plain_listener(host, port, self._listeners[0].advertised)]
        for listener in self._listeners:
            check_logins(self._settings, listener)
            if listener.protocol.has_tls:
                make_context(self._settings, listener)
        self._users = both_mechanisms(users) if isinstance(users, Mapping) else [*users]
        self._on_failure = on_failure
        self._clock = ManualClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._stopping: Server | None = None
        self._is_ending = self._has_ended = False
        self._calls: set[Future[Any]] = set()
        """Calls of `submit` without a result. A loop that stops drops the calls that it has not begun."""
        self.failure: Exception | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first listener, as HOST:PORT."""
        return self.address_of(self._running().listeners[0].name)

    @property
    def listeners(self) -> list[BrokerListener]:
        """The listeners, with the ports and addresses in use."""
        return [*self._running().listeners]

    def address_of(self, listener: str) -> str:
        """The advertised address of a listener, as HOST:PORT."""
        host, port = self._running().core.address_of(listener.upper())
        return f"{host}:{port}"

    @property
    def core(self) -> BrokerCore:
        """The core of the broker. Use it only inside `call`, which runs on the broker's thread."""
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
                "the stop made no progress for %d s and was abandoned; the data directory %s is still in use, "
                "and the next start checks it",
                STOP_S_MAX,
                self._data_dir or MEMORY,
            )

    def _progress(self) -> int:
        return self._stopping.progress if self._stopping is not None else 0

    def _ask_to_stop(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just closed by itself
                self._loop.call_soon_threadsafe(self._end_loop)

    def _end_loop(self) -> None:
        """Runs on the loop, once: a second request would break off the clean stop that follows."""
        if self._loop is not None and not self._is_ending:
            self._is_ending = True
            self._loop.stop()

    def advance(self, seconds: float) -> None:
        """Moves the broker's clock forward, and returns when everything that became due is done."""
        server = self._running()

        def move() -> None:
            self._clock.advance(seconds)
            server.clock_moved()

        self.call(move)

    def share_state(self, group_id: str) -> dict[tuple[str, int], SharePartitionState]:
        """The state of a share group by topic and partition, including the locks, their holders and remaining time.

        Raises KafkaError (GROUP_ID_NOT_FOUND) if there is no such share group. `Admin.share_state` gives the same for
        any Kafka, from what is written down, and so without locks.
        """
        core = self.core
        return self.call(lambda: group_view(core, group_id))

    def release_record(self, group_id: str, topic: str, partition: int, offset: int) -> str:
        """Releases a record that another member has acquired, for example one that hangs. Returns the member ID."""
        core = self.core
        return self.call(lambda: release_record(core, group_id, topic, partition, offset))

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function on the broker's thread and returns its result."""
        return self.submit(function).result()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Like `call`, without waiting. The future fails with NotRunningError if the broker stops before the call."""
        server = self._running()
        result: Future[T] = Future()

        def run() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)
            server.settle()

        self._calls.add(result)
        result.add_done_callback(self._calls.discard)
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            server.loop.call_soon_threadsafe(run)
        if self._has_ended:
            self._fail_calls()
        return result

    def _fail_calls(self) -> None:
        for call in tuple(self._calls):
            with contextlib.suppress(InvalidStateError):  # it was failed on the other thread in this moment
                call.set_exception(self._not_running())

    def __enter__(self) -> Self:
        if self._thread is not None and self._server is not None:
            return self  # started before, as in `with Broker().start() as broker:`
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Server:
        server = self._server
        if server is None:
            raise self._not_running()
        return server

    def _not_running(self) -> NotRunningError:
        if self._thread is None:
            return NotRunningError("the broker is not running; use `with Broker() as broker:` or start()")
        if self.failure is not None:
            return NotRunningError(
                f"the broker is not running: it has stopped after a failure: {self.failure}"
            )
        return NotRunningError("the broker is not running: it was stopped; make a new one to start again")

    def _run(self, started: "Future[None]") -> None:
        loop = new_event_loop()
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
            loop.run_until_complete(server.listen(core, self._listeners))
        except BaseException as error:
            loop.run_until_complete(server.stop())
            loop.close()
            started.set_exception(error)
            return
        control = None
        if self._data_dir is not None:
            control = loop.run_until_complete(ControlSocket.open(server, self._data_dir))
        self._loop, self._server = loop, server
        lag = LoopLag(loop, core.metrics.histogram("headrace_event_loop_lag_ms"))
        lag.start()
        self._announce(core)
        started.set_result(None)
        try:
            loop.run_forever()
        finally:
            self._server, self._stopping = None, server
            lag.stop()
            if control is not None:
                control.close()
            try:
                loop.run_until_complete(server.stop())
            except Exception as error:
                self.failure = self.failure or error
                logger.critical(
                    "the data directory was not closed cleanly; the next start checks it: %s", error
                )
            loop.close()
            self._has_ended = True
            self._fail_calls()
            logger.info("stopped clean=%s", str(self.failure is None).lower())

    def _open(self, server: Server) -> BrokerCore:
        disk: Disk
        if self._data_dir is None:
            disk, metadata_path = MemoryDisk(), None
        else:
            disk = OsDisk(self._data_dir)
            metadata_path = self._data_dir / "metadata.sqlite"
            _require_metadata(disk, metadata_path)
        core = BrokerCore(
            self._settings,
            disk=disk,
            metadata_path=metadata_path,
            clock=self._clock,
            runner=server,
            on_failure=self._failed,
        )
        if metadata_path is not None:
            _make_private(metadata_path)
        try:
            core.users.add_missing(self._users)
        except BaseException:
            core.close()
            raise
        return core

    def _failed(self, error: Exception) -> None:
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(error)
        if self._loop is not None:
            self._loop.call_soon(self._end_loop)

    def _announce(self, core: BrokerCore) -> None:
        assert self._server is not None
        logger.info(
            "started version=%s data=%s flush=%s listen=%s node=%d cluster=%s",
            __version__,
            self._data_dir or MEMORY,
            self._settings.get_str("headrace.flush") if self._data_dir is not None else "none",
            self.bootstrap_servers,
            core.node_id,
            core.cluster_id,
        )
        for listener in self._server.listeners:
            announce(self._settings, listener)
        announce_doubts(self._settings, self._server.listeners)


def _make_private(path: Path) -> None:
    """The files with the users' credentials, in a directory that may be older than they are."""
    for each in path.parent.glob(f"{path.name}*"):
        with contextlib.suppress(OSError):  # another user's, with rights for us; or gone by now
            each.chmod(FILE_MODE)


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
            f"{path} is missing, and with it the topics of {len(found)} partitions. "
            "Restore it from a backup, or use another directory"
        )
