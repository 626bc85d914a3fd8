"""The clock for what is deleted by age: it follows the wall clock, but not into a future that may be a mistake."""

from headrace.broker.clock import BELIEVED_AFTER_MS, DRIFT_MS, ExpiryClock, StampingClock

DAY_MS = 86_400_000


class Clocks:
    def __init__(self) -> None:
        self.monotonic, self.wall = 5_000, 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self.monotonic

    def wall_ms(self) -> int:
        return self.wall

    def pass_ms(self, ms: int) -> None:
        self.monotonic += ms
        self.wall += ms


def test_it_shows_the_wall_clocks_time() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks)
    clocks.pass_ms(DAY_MS)
    assert expiry.wall_ms() == clocks.wall_ms()


def test_a_jump_forward_that_is_taken_back_makes_nothing_old() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks)
    clocks.wall += 30 * DAY_MS
    for _ in range(10):
        assert expiry.wall_ms() == clocks.wall_ms() - 30 * DAY_MS
        clocks.pass_ms(BELIEVED_AFTER_MS // 20)
    clocks.wall -= 30 * DAY_MS
    assert expiry.wall_ms() == clocks.wall_ms()


def test_a_jump_forward_that_lasts_is_believed() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks)
    clocks.wall += 30 * DAY_MS
    expiry.wall_ms()
    clocks.pass_ms(BELIEVED_AFTER_MS)
    assert expiry.wall_ms() == clocks.wall_ms()


def test_a_step_back_and_a_small_correction_are_followed_at_once() -> None:
    clocks = Clocks()
    expiry = ExpiryClock(clocks)
    clocks.wall -= DAY_MS
    assert expiry.wall_ms() == clocks.wall_ms()
    clocks.wall += DRIFT_MS
    assert expiry.wall_ms() == clocks.wall_ms()


def test_a_minute_is_a_jump_too() -> None:
    """Producers may be forgotten after one."""
    clocks = Clocks()
    expiry = ExpiryClock(clocks)
    clocks.wall += 60_000
    assert expiry.wall_ms() == clocks.wall_ms() - 60_000


def test_what_is_stamped_while_the_clock_is_behind_is_not_old_when_it_is_right_again() -> None:
    clocks = Clocks()
    clock = StampingClock(clocks)
    clocks.wall -= DAY_MS
    stamped_ms = clock.wall_ms()
    clocks.wall += DAY_MS
    clocks.pass_ms(1_000)
    assert clock.expiry.wall_ms() - stamped_ms == 1_000
    assert clock.wall_ms() == clocks.wall_ms()
