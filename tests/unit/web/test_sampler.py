"""When the sampler looks at the cluster: while somebody watches, and else only if that costs next to nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from headrace.web import sampler as sampler_module
from headrace.web.history import History
from headrace.web.model import Overview
from headrace.web.options import WebOptions
from headrace.web.sampler import Sampler
from tests.virtual_time import run_in_virtual_time


class Sign:
    """Stands for an admin client of which only a sign of life is wanted."""

    def __init__(self) -> None:
        self.is_there = True
        self.is_frozen = False

    async def cluster(self) -> None:
        if self.is_frozen:
            await asyncio.Event().wait()
        if not self.is_there:
            raise ConnectionError("refused")


class NoSource:
    detail = None

    def __init__(self) -> None:
        self.admin = Sign()


class Counting(Sampler):
    """Only counts its rounds; what they see is no matter here."""

    def __init__(self) -> None:
        self.source = NoSource()
        super().__init__(cast(Any, self.source), History(), WebOptions(sample_s=0.2))
        self.rounds = 0
        self.fails = False
        self.hangs = False
        self.looked = asyncio.Event()

    async def _look(self) -> Overview:
        self.rounds += 1
        self.looked.set()
        if self.fails:
            raise ConnectionError("gone")
        if self.hangs:
            await asyncio.Event().wait()
        return Overview(cluster_id="", version="", is_embedded=False, is_read_only=False, sampled_at=1)

    async def until_rounds(self, count: int) -> None:
        while self.rounds < count:
            self.looked.clear()
            await self.looked.wait()

    async def until_it_rests(self) -> None:
        while self._is_awake.is_set():  # noqa: ASYNC110 - nobody in the program needs an event for that
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running() -> AsyncIterator[Counting]:
    sampler = Counting()
    await sampler.sample()
    task = asyncio.create_task(sampler.run())
    try:
        async with asyncio.timeout(30):
            yield sampler
    finally:
        task.cancel()


@pytest.fixture
def is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round takes longer than what is cheap."""
    monkeypatch.setattr(sampler_module, "CHEAP_S", -1.0)


def test_a_large_cluster_that_nobody_watches_is_left_alone_until_somebody_comes(is_large: None) -> None:
    async def story() -> None:
        async with running() as sampler:
            await sampler.until_it_rests()
            assert sampler.rounds == 1
            await sampler.awake()
            assert sampler.rounds == 2
            await sampler.until_rounds(4)

    asyncio.run(story())


def test_who_sees_the_overview_again_and_again_keeps_the_sampler_at_work(
    is_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "WATCHED_S", 0.0)

    async def story() -> None:
        async with running() as sampler:
            await sampler.until_it_rests()
            monkeypatch.setattr(sampler_module, "WATCHED_S", 60.0)
            await sampler.awake()
            sampler.look()
            await sampler.until_rounds(4)
            monkeypatch.setattr(sampler_module, "WATCHED_S", 0.0)
            await sampler.until_it_rests()

    asyncio.run(story())


def test_who_comes_after_a_while_sees_a_new_round_and_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler_module, "UNWATCHED_COST_RATIO", 1e9)  # nobody watches, so no round is near
    monkeypatch.setattr(sampler_module, "PROBE_S", 60.0)

    async def come() -> None:
        async with running() as sampler:
            assert sampler.rounds == 1
            await sampler.awake()
            assert sampler.rounds == 2
            await sampler.awake()  # somebody is there by now: the last round will do
            assert sampler.rounds == 2

    asyncio.run(come())


def test_a_small_cluster_is_sampled_though_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "CHEAP_S", 60.0)
    monkeypatch.setattr(sampler_module, "UNWATCHED_COST_RATIO", 0)

    async def story() -> None:
        async with running() as sampler:
            await sampler.until_rounds(3)

    asyncio.run(story())


def test_a_cluster_that_could_not_be_seen_is_looked_at_until_it_answers(is_large: None) -> None:
    async def story() -> None:
        async with running() as sampler:
            await sampler.until_it_rests()
            sampler.fails = True
            sampler.hurry()
            await sampler.until_rounds(4)
            assert sampler.overview.error is not None
            sampler.fails = False
            await sampler.until_it_rests()
            assert sampler.overview.error is None

    asyncio.run(story())


def test_a_probe_without_a_response_breaks_off_the_round_and_its_return_begins_one(is_large: None) -> None:
    async def story() -> None:
        async with running() as sampler:
            await sampler.awake()
            sampler.hangs = True
            rounds = sampler.rounds
            await sampler.until_rounds(rounds + 1)
            sampler.source.admin.is_there = False
            await sampler.gone()
            assert sampler.overview.error == "The cluster does not respond: refused"
            assert sampler.overview.gone_since is not None
            sampler.hangs, sampler.source.admin.is_there = False, True
            await sampler.until_rounds(rounds + 2)
            assert (sampler.overview.error, sampler.overview.gone_since) == (None, None)

    asyncio.run(story())


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.9, 1.1])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_cluster_that_is_gone_or_back_is_known_as_such_within_three_seconds(
    is_frozen: bool, moment: float
) -> None:
    async def story() -> None:
        clock = asyncio.get_running_loop().time
        async with running() as sampler:
            await sampler.awake()
            admin = sampler.source.admin
            await asyncio.sleep(moment)
            admin.is_frozen, admin.is_there, sampler.hangs = is_frozen, False, True
            before_s = clock()
            await sampler.turned()
            assert clock() - before_s <= 3
            assert sampler.is_gone
            await asyncio.sleep(5 + moment)
            admin.is_frozen, admin.is_there, sampler.hangs = False, True, False
            before_s = clock()
            await sampler.turned()
            assert clock() - before_s <= 3
            assert sampler.overview.error is None

    run_in_virtual_time(story())


def test_whoever_waits_for_news_gets_every_overview_and_that_the_cluster_is_gone() -> None:
    async def story() -> None:
        async with running() as sampler:
            sampler.look()
            assert (await sampler.news()).error is None
            sampler.source.admin.is_frozen = sampler.hangs = True
            while (await sampler.news()).gone_since is None:
                pass
            assert sampler.is_gone

    run_in_virtual_time(story())


def test_one_who_runs_it_before_any_round_gets_one_at_once() -> None:
    async def story() -> None:
        sampler = Counting()
        running = asyncio.create_task(sampler.run())
        assert (await sampler.news()).sampled_at is not None
        running.cancel()

    run_in_virtual_time(story())
