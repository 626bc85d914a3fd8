"""What becomes of the locks of a member's ranges as time passes: renewed, released in time, or lost.

What waits in the buffer, and with auto.renew what the application works on, is renewed when half of its lock has
passed. What cannot be renewed and was never handed out is released in time; what was handed out is lost. A record that
waits behind an application which does not poll for half a lock goes back to the group for others to take, once: a
record that was delivered before is renewed, so that waiting in buffers never uses up its deliveries. What is to be
released later is renewed until then; where that is not possible it is released in time, before its lock ends.
"""

from collections.abc import Iterable, Mapping

from headrace.base.ranges import Ranged
from headrace.client.core.acknowledgements import Ack
from headrace.client.core.holdings import Holdings
from headrace.client.core.lanes import BrokerLane
from headrace.client.core.ranges import DELAYED, UNSENT, AcquiredRange, RangeState
from headrace.client.core.session import BrokerSession
from headrace.client.settings import ShareSettings

S = RangeState
OWN_NUMBER = -1
"""No commit waits for a renewal of the member's own."""


class LockKeeper:
    """See the module. `is_ahead`: whoever takes the records keeps up by itself (Spark), so none of them is hoarded."""

    def __init__(
        self,
        holdings: Holdings,
        sessions: Mapping[int, BrokerSession],
        settings: ShareSettings,
        *,
        is_ahead: bool = False,
    ) -> None:
        self._holdings = holdings
        self._sessions = sessions
        self._is_ahead = is_ahead
        self._auto_renew = settings.auto_renew
        self._auto_renew_max_ms = settings.auto_renew_max_ms

    def configure(self, *, auto_renew: bool | None = None) -> None:
        """`auto_renew` is to be switched off where the group refuses renewals: a refused one costs the lock."""
        if auto_renew is not None:
            self._auto_renew = auto_renew

    def check(self, *, is_out: bool, polled_ms: int | None, now_ms: int) -> None:
        """Renews, releases and loses whatever is due.

        `is_out`: the member has left, so nothing is kept ready. `polled_ms`: when the application last polled.
        """
        for node_id, lane in self._holdings.lanes.items():
            if lane.due_ms is not None and now_ms >= lane.due_ms:
                lane.due_ms = None
                session = self._sessions[node_id]
                can_renew = session.is_open and not session.is_old
                for acquired in list(lane.acquired()):
                    is_idle = polled_ms is None or now_ms - polled_ms >= acquired.lock_ms // 2
                    self._check(lane, acquired, can_renew, is_out, is_idle, now_ms)

    def _check(
        self,
        lane: BrokerLane,
        acquired: AcquiredRange,
        can_renew: bool,
        is_out: bool,
        is_idle: bool,
        now_ms: int,
    ) -> None:
        if now_ms >= acquired.lock_until_ms:
            self._holdings.lose_ended(acquired, now_ms=now_ms)
            if now_ms >= acquired.lock_until_ms:
                return
        self._holdings.release_due(acquired, now_ms)
        due_ms = acquired.next_due_ms
        if due_ms is not None:
            lane.due(due_ms)
        until_ms, lock_ms = acquired.lock_until_ms, acquired.lock_ms
        held = list(acquired.spans(of=UNSENT))
        if not held:
            return
        is_hoarded = not self._is_ahead and acquired.is_all(S.BUFFERED) and acquired.delivery_count == 1
        half_ms = until_ms - lock_ms // 2
        is_renewing = lane.is_renewing(acquired)
        if is_renewing or not (can_renew and self._may_renew(acquired, is_out, now_ms)):
            release_ms = until_ms - lock_ms // 10
            if acquired.taken_ms is not None or is_renewing:
                lane.due(until_ms)
            elif now_ms >= release_ms:
                self._holdings.give_back(acquired)
            else:
                lane.due(release_ms)
        elif now_ms < half_ms - lock_ms // 8:
            lane.due(half_ms)
        elif is_hoarded and is_idle:
            self._holdings.give_back(acquired)
        else:
            _renew(lane, acquired, held)
            lane.due(until_ms)
        if acquired.has(S.DELAYED):
            self._keep_delayed(lane, acquired, can_renew, now_ms)

    def _keep_delayed(self, lane: BrokerLane, acquired: AcquiredRange, can_renew: bool, now_ms: int) -> None:
        """What is to be released later keeps its lock, whatever becomes of its neighbors."""
        lock_ms, is_renewing = acquired.lock_ms, lane.is_renewing(acquired)
        over: list[Ranged] = []
        for lock in acquired.locks(of=DELAYED):
            until_ms = lock.until_ms
            renew_ms, release_ms = until_ms - lock_ms // 2, until_ms - lock_ms // 10
            if is_renewing:
                lane.due(until_ms)
            elif not can_renew and now_ms >= release_ms:
                over.append(lock)
            elif not can_renew:
                lane.due(release_ms)
            elif now_ms < renew_ms - lock_ms // 8:
                lane.due(renew_ms)
            else:
                _renew(lane, acquired, [lock])
                lane.due(until_ms)
        self._holdings.release_now(acquired, over)

    def _may_renew(self, acquired: AcquiredRange, is_out: bool, now_ms: int) -> bool:
        if acquired.taken_ms is None:
            return not is_out
        return self._auto_renew and now_ms < acquired.taken_ms + self._auto_renew_max_ms


def _renew(lane: BrokerLane, acquired: AcquiredRange, parts: Iterable[Ranged]) -> None:
    lane.renew(Ack(acquired, one.first, one.last, S.RENEW, OWN_NUMBER, is_own=True) for one in parts)
