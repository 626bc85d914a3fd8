"""Group commit: whoever needs durability waits for the next sync of what it needs, and one sync serves all who wait.

Each thing (a log, a checkpoint, the metadata store) is synced by itself, several at a time; a request waits for its
own things and for nobody else's. While a thing is being synced, later requests for it collect for its next sync.
Those that are ready take turns by request, so that one that needs a single sync does not wait behind one that needs
hundreds. There is no order between the things of one request: where one must be on disk before the other, ask for
the first, and for the second when that has resolved.

With `headrace.flush=fsync` an answer that promises durability leaves after the sync; with `os` it leaves at once.
A failed sync is final: nobody knows which bytes the kernel dropped, so the broker stops rather than lie.
"""

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter

from headrace.broker.later import Later, resolved
from headrace.broker.runner import Run
from headrace.log.durable import Durable
from headrace.wire.errors import KafkaError

SYNCS_MAX = 32
"""At a time. More would not make a disk faster, and each needs a thread."""
SYNCS_MIN = 4
SYNCS_PER_MS = 4
"""How many run at a time for each millisecond that one takes. Where syncs are fast, more threads would only compete for
the interpreter's lock, and everybody would wait longer; where they are slow, the threads wait for the disk together."""
AVERAGE_OVER = 16

Sync = Callable[[list[Durable]], Iterable[Durable] | None]


def sync_each(things: list[Durable]) -> list[Durable]:
    rest: list[Durable] = []
    for thing in things:
        rest += thing.sync() or ()
    return rest


class _Request:
    """Somebody waits for several things."""

    __slots__ = ("answer", "missing")

    def __init__(self, missing: int) -> None:
        self.answer: Later[None] = Later()
        self.missing = missing

    def count_down(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.answer.resolve(None)


class _Thing:
    __slots__ = ("durable", "is_queued", "is_running", "waiting")

    def __init__(self, durable: Durable) -> None:
        self.durable = durable
        self.is_queued = False
        self.is_running = False
        self.waiting: list[_Request] = []
        """For a sync that has not begun."""


class GroupCommit:
    def __init__(
        self,
        sync: Sync,
        run: Run | None,
        on_failure: Callable[[Exception], None],
        *,
        waits: bool = True,
        syncs_max: int = SYNCS_MAX,
        now_ms: Callable[[], int] = lambda: 0,
        synced: Callable[[float], None] = lambda took_ms: None,
    ) -> None:
        """Without a runner nothing is synced: memory has to do. Without `waits`, only what `saved` is asked for.

        `synced` is told how many milliseconds each sync took.
        """
        self._sync = sync
        self._run = run
        self._on_failure = on_failure
        self._waits = waits
        self._syncs_max = syncs_max
        self._now_ms = now_ms
        self._synced = synced
        self._sync_ms = 0.0
        """How long a sync takes, on average."""
        self._things: dict[Durable, _Thing] = {}
        """Those that are queued or being synced."""
        self._lanes: deque[deque[_Thing]] = deque()
        """What is ready, by the request that needs it. A thing may be in several lanes; the first turn counts."""
        self._running = 0
        self._is_starting = False
        self._has_failed = False
        self._done: Later[None] = resolved(None)

    def durable(self, things: Iterable[Durable]) -> Later[None]:
        """Resolves once everything they hold now is on disk. After a failed sync it never does."""
        return self.saved(things) if self._waits else self._done

    def saved(self, things: Iterable[Durable]) -> Later[None]:
        """`durable` even where `headrace.flush=os`: for what must be on disk before something else is done."""
        wanted = dict.fromkeys(things)
        if self._run is None or not wanted:
            return self._done
        request = _Request(len(wanted))
        lane: deque[_Thing] = deque()
        for durable in wanted:
            thing = self._things.get(durable)
            if thing is None:
                thing = self._things[durable] = _Thing(durable)
            thing.waiting.append(request)
            if not thing.is_running:
                thing.is_queued = True
                lane.append(thing)
        self._queue(lane)
        return request.answer

    def _queue(self, lane: deque[_Thing]) -> None:
        if lane:
            self._lanes.append(lane)
            self._start()

    def _start(self) -> None:
        if self._is_starting:
            return  # a runner that does the work on the spot comes back here from within the loop below
        self._is_starting = True
        try:
            while self._running < self._at_a_time() and not self._has_failed:
                thing = self._next()
                if thing is None:
                    break
                self._begin(thing)
        finally:
            self._is_starting = False

    def _at_a_time(self) -> int:
        return min(self._syncs_max, max(SYNCS_MIN, int(self._sync_ms * SYNCS_PER_MS)))

    def _next(self) -> _Thing | None:
        """One of each lane in turn."""
        while self._lanes:
            lane = self._lanes.popleft()
            thing = lane.popleft()
            if lane:
                self._lanes.append(lane)
            if thing.is_queued:
                return thing
        return None

    def _begin(self, thing: _Thing) -> None:
        assert self._run is not None
        thing.is_queued, thing.is_running = False, True
        self._running += 1
        served, thing.waiting = thing.waiting, []
        rest: list[Durable] = []
        took_ms = 0
        exact_ms = 0.0

        def work() -> None:
            nonlocal took_ms, exact_ms
            began_ms, began_s = self._now_ms(), perf_counter()
            rest.extend(self._sync([thing.durable]) or ())
            took_ms = self._now_ms() - began_ms
            exact_ms = (perf_counter() - began_s) * 1000

        def done(error: Exception | None) -> None:
            self._running -= 1
            self._sync_ms += (took_ms - self._sync_ms) / AVERAGE_OVER
            self._synced(exact_ms)
            thing.is_running = False
            if error is not None and not isinstance(error, KafkaError):
                self._has_failed = True
                self._on_failure(error)
                return
            if thing.waiting:
                thing.is_queued = True
                self._lanes.append(deque([thing]))
            else:
                del self._things[thing.durable]
            if error is not None:
                for request in served:
                    request.answer.fail(error)
            elif rest:
                self.saved(rest).then(lambda _: _serve(served), lambda refusal: _refuse(served, refusal))
            else:
                _serve(served)
            self._start()

        self._run(work, done)


def _serve(requests: list[_Request]) -> None:
    for request in requests:
        request.count_down()


def _refuse(requests: list[_Request], error: Exception) -> None:
    for request in requests:
        request.answer.fail(error)
