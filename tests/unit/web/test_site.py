"""Answers are shared: one asks, all get it, for a while; costly ones for longer; failures are not kept."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.web import site as site_module
from headrace.web.embedded import GroupCounts
from headrace.web.options import WebOptions
from headrace.web.site import CACHE_MAX, COST_RATIO, Site
from headrace.web.source import PageSource


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(site_module, "time", clock)
    return clock


def play(story: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        source = PageSource(cast(Any, None), cast(Any, None), None)
        await story(Site(source, WebOptions(), "secret"))

    asyncio.run(run())


class Work:
    """Counts how often it was done; takes so many seconds of the clock."""

    def __init__(self, clock: Clock, cost_s: float = 0.0) -> None:
        self.clock = clock
        self.cost_s = cost_s
        self.done = 0

    async def __call__(self) -> int:
        self.done += 1
        await asyncio.sleep(0)
        self.clock.now += self.cost_s
        return self.done


def test_an_answer_is_kept_for_its_time(clock: Clock) -> None:
    async def story(site: Site) -> None:
        work = Work(clock)
        assert [await site.cached(("a",), 1.0, work) for _ in range(3)] == [1, 1, 1]
        assert await site.cached(("b",), 1.0, work) == 2
        clock.now += 1.0
        assert await site.cached(("a",), 1.0, work) == 3

    play(story)


def test_many_who_ask_at_the_same_time_make_one_question(clock: Clock) -> None:
    async def story(site: Site) -> None:
        work = Work(clock)
        assert await asyncio.gather(*(site.cached(("a",), 1.0, work) for _ in range(20))) == [1] * 20

    play(story)


def test_what_was_costly_is_kept_longer(clock: Clock) -> None:
    async def story(site: Site) -> None:
        work = Work(clock, cost_s=2.0)
        await site.cached(("a",), 1.0, work)
        clock.now += COST_RATIO * 2.0 - 0.1
        assert await site.cached(("a",), 1.0, work) == 1
        clock.now += 0.2
        assert await site.cached(("a",), 1.0, work) == 2

    play(story)


def test_a_failure_is_not_kept(clock: Clock) -> None:
    async def fail() -> int:
        raise ValueError("no")

    async def story(site: Site) -> None:
        with pytest.raises(ValueError, match="no"):
            await site.cached(("a",), 60.0, fail)
        assert await site.cached(("a",), 60.0, Work(clock)) == 1

    play(story)


def test_a_change_makes_everything_old(clock: Clock) -> None:
    async def story(site: Site) -> None:
        work = Work(clock)
        await site.cached(("a",), 60.0, work)
        site.note_change()
        assert await site.cached(("a",), 60.0, work) == 2

    play(story)


def test_no_more_answers_are_kept_than_allowed(clock: Clock) -> None:
    async def story(site: Site) -> None:
        for number in range(CACHE_MAX + 10):
            await site.cached((str(number),), 60.0, Work(clock))
        assert len(site._cache) == CACHE_MAX

    play(story)


def test_member_rates_are_per_second_and_not_cut_into_slivers(clock: Clock) -> None:
    async def story(site: Site) -> None:
        site.member_rates("g", GroupCounts({"ann": 10}, {"ann": 4}))
        clock.now += 2.0
        rates = site.member_rates("g", GroupCounts({"ann": 50}, {"ann": 10}))
        assert rates == {"ann": (20.0, 3.0)}
        clock.now += 0.1
        assert site.member_rates("g", GroupCounts({"ann": 51}, {"ann": 10})) == rates

    play(story)
