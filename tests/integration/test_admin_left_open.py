"""An `Admin` that nobody closes, and one on both sides of a fork."""

import os
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from headrace import Admin, Broker
from tests.conformance.steps import wait_for


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def admin_threads() -> int:
    return sum(thread.name == "headrace-admin" for thread in threading.enumerate())


def test_a_dropped_admin_warns_and_ends_its_thread(broker: Broker) -> None:
    before = admin_threads()
    kept = [Admin(bootstrap_servers=broker.bootstrap_servers).start()]
    assert admin_threads() == before + 1
    with pytest.warns(ResourceWarning, match="Admin was not closed"):
        kept.clear()
    wait_for(lambda: admin_threads() == before)


def test_the_child_of_a_fork_may_leave_the_with_block(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is what is tested
            child = os.fork()
        if not child:
            try:
                admin.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        admin.create_topic("t")


def test_threads_that_start_an_admin_at_the_same_time_share_one_connection_thread(broker: Broker) -> None:
    before, interval = admin_threads(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            admin = Admin(bootstrap_servers=broker.bootstrap_servers)
            barrier = threading.Barrier(8)

            def start(admin: Admin = admin, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                admin.start().list_topics()

            threads = [threading.Thread(target=start) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert admin_threads() == before + 1
            admin.close()
    finally:
        sys.setswitchinterval(interval)
