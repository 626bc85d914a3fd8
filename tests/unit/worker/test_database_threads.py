"""Transactions of coroutines run on threads that keep no program alive, and that are not more than they may be."""

import asyncio
import threading

import pytest

from headrace.worker.transactions import database
from headrace.worker.transactions.database import DaemonThreads, Database


class Stuck(Database):
    """It does not answer."""

    def __init__(self):
        self.began, self.answers = threading.Event(), threading.Event()
        self.threads = []

    def transact(self, steps):
        self.threads.append(threading.current_thread())
        self.began.set()
        self.answers.wait()


def test_a_database_that_does_not_answer_keeps_no_program_alive():
    stuck = Stuck()

    async def scenario():
        transacting = asyncio.create_task(stuck.transact_async(lambda: iter(())))
        await asyncio.to_thread(stuck.began.wait)
        transacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transacting

    try:
        asyncio.run(scenario())  # which waits for the threads of asyncio.to_thread
        assert [thread.daemon for thread in stuck.threads] == [True]
    finally:
        stuck.answers.set()


def test_threads_are_shared_and_results_and_errors_come_back():
    threads = DaemonThreads(2)
    used = set()

    def call(number):
        used.add(threading.current_thread())
        if number == 7:
            raise ValueError("seven")
        return number

    async def scenario():
        calls = (threads.run(lambda number=number: call(number)) for number in range(20))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(scenario())
    assert [result for result in results if isinstance(result, int)] == [*range(7), *range(8, 20)]
    assert str(results[7]) == "seven"
    assert len(used) <= 2


def test_a_thread_ends_when_nothing_comes_and_another_begins(monkeypatch):
    monkeypatch.setattr(database, "IDLE_S", 0.01)
    threads = DaemonThreads(1)
    first = asyncio.run(threads.run(threading.current_thread))
    first.join(30)
    assert not first.is_alive()
    assert asyncio.run(threads.run(threading.current_thread)) is not first
