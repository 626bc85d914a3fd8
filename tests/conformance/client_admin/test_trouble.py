"""Goal: trouble on the way to the brokers is waited out where that helps, and named where it does not.

Method: our own broker, stopped and started under the client's feet. What Apache Kafka does when its coordinators move
is in the tests of three nodes.
"""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.admin import Admin, AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.errors import BrokerNotAvailableError, ConfigError, IllegalStateError
from tests.ctrl_c import ctrl_c_inside


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_broker_that_cannot_be_reached_is_named_in_time() -> None:
    port = free_port()
    with pytest.raises(BrokerNotAvailableError, match=rf"127\.0\.0\.1:{port}.*Check bootstrap\.servers"):
        Admin(bootstrap_servers=f"127.0.0.1:{port}", default_api_timeout_ms=300).start()
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-admin"]


def test_a_call_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    port = free_port()
    with Broker(data_dir=tmp_path, port=port) as broker:
        admin = Admin(bootstrap_servers=broker.bootstrap_servers).start()
        admin.create_topic("orders")
    with admin:
        restarted = Broker(data_dir=tmp_path, port=port)
        timer = threading.Timer(0.3, restarted.start)
        timer.start()
        try:
            assert [topic.name for topic in admin.list_topics()] == ["orders"]
            admin.set_group_config("kitchen", {"share.auto.offset.reset": "earliest"})
            assert admin.group_config("kitchen")["share.auto.offset.reset"].value == "earliest"
        finally:
            timer.join()
            restarted.stop()


def test_a_call_gives_up_when_its_time_is_over_and_says_how_long_it_tried() -> None:
    with Broker() as broker:
        admin = Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=500).start()
        admin.list_topics()
    with admin, pytest.raises(BrokerNotAvailableError) as gave_up:
        admin.describe_share_group("kitchen")
    assert any(note.startswith("Tried for ") for note in gave_up.value.__notes__)


def test_ctrl_c_ends_a_call_at_once() -> None:
    with Broker() as broker:
        admin = Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=600_000).start()
        admin.list_topics()
    with admin, pytest.raises(KeyboardInterrupt), ctrl_c_inside(BackgroundLoop.run):
        admin.list_topics()


def test_many_tasks_and_threads_share_one_admin(headrace: Broker, unique: str) -> None:
    async def create_many() -> None:
        async with AsyncAdmin(bootstrap_servers=headrace.bootstrap_servers) as admin:
            names = [f"{unique}-{number}" for number in range(30)]
            await asyncio.gather(*(admin.create_topic(name) for name in names))
            assert set(await admin.describe_topics(names)) == set(names)

    asyncio.run(create_many())
    found: list[int] = []
    with Admin(bootstrap_servers=headrace.bootstrap_servers) as admin:

        def count() -> None:
            found.append(len([topic for topic in admin.list_topics() if topic.name.startswith(unique)]))

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [30] * 8


def test_an_admin_that_is_not_connected_or_closed_says_so(headrace: Broker) -> None:
    admin = Admin(bootstrap_servers=headrace.bootstrap_servers)
    with pytest.raises(IllegalStateError, match="use `with Admin"):
        admin.list_topics()
    with admin:
        admin.list_topics()
    admin.close()
    with pytest.raises(IllegalStateError, match="not connected"):
        admin.list_topics()
    with pytest.raises(IllegalStateError, match="closed; make a new one"):
        admin.start()


def test_a_setting_that_does_not_exist_is_refused_before_anything_connects() -> None:
    with pytest.raises(ConfigError, match=r"did you mean request\.timeout\.ms"):
        Admin(bootstrap_servers="localhost:1", request_timout_ms=5)
