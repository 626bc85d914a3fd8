"""Pages over 2,000 topics and 1,000 groups ask the cluster for none of them, and show no more than a page of rows."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace import Broker
from tests.conformance.share.share_client import start_at
from tests.conformance.steps import new_topic, wait_for
from tests.web.conftest import BROKER, KITCHEN, ORDERS, World

TOPICS, GROUPS = 2_000, 1_000
ROWS_MAX = 50
BYTES_MAX = 200_000
OF_EVERY_ROUND = {"DescribeCluster", "Metadata", "ApiVersions"}
"""What the probe and new connections send, whoever looks."""


@pytest.fixture(scope="module")
def many() -> Iterator[World]:
    with ExitStack() as closing:
        broker = closing.enter_context(Broker(settings=BROKER))
        world = World(broker, closing, sample_s=60.0)  # no round but the one that is asked for
        new_topic(world.wire, ORDERS)
        create = broker.core.topics.create
        for number in range(TOPICS - 2):
            broker.call(lambda name=f"topic-{number:04}": create(name, partitions=1, configs={}))
        for number in range(GROUPS - 1):
            start_at(world.wire, f"group-{number:04}", ORDERS, {0: 0})
        start_at(world.wire, KITCHEN, ORDERS, {0: 0})
        world.do("/topic/create", topic="the-last", partitions=1)  # after which a round begins at once
        sampler = world.web._app.state.site.sampler
        wait_for(
            lambda: (
                world.get("/topics", internal="no")["total"] == TOPICS
                and world.get("/groups")["total"] == GROUPS
                and sampler._round is None
            ),
            timeout_s=60,
        )
        yield world


def requests_of(world: World) -> dict[str, float]:
    """Requests that the broker has answered, by API."""
    samples = world.broker.call(world.broker.core.metrics.snapshot)
    return {
        one.labels["request"]: sum(one.counts)
        for one in samples
        if one.name == "TotalTimeMs" and one.labels["request"] not in OF_EVERY_ROUND
    }


@pytest.mark.parametrize(
    ("path", "total"),
    [
        ("/", "All"),
        ("/groups", "page 1 of 20"),
        ("/groups?sort=lag&page=20", "page 20 of 20"),
        ("/groups?q=group-00", "page 1 of 2"),
        ("/topics?internal=no", "page 1 of 40"),
        ("/topics?sort=size&page=3&internal=no", "page 3 of 40"),
    ],
)
def test_a_list_is_answered_from_the_last_round_with_a_page_of_rows(
    many: World, path: str, total: str
) -> None:
    before = requests_of(many)
    answer = many.http.get(path)
    assert (answer.status_code, total in answer.text) == (200, True)
    assert answer.text.count("data-key=") <= 2 * ROWS_MAX  # the overview has groups and topics
    assert len(answer.content) < BYTES_MAX
    assert requests_of(many) == before


def test_a_page_of_one_group_or_topic_asks_for_no_other(many: World) -> None:
    for path in (f"/group?group={KITCHEN}", f"/topic?topic={ORDERS}"):
        before = requests_of(many)
        answer = many.http.get(path)
        assert answer.status_code == 200
        assert len(answer.content) < BYTES_MAX
        after = requests_of(many)
        assert sum(after.values()) - sum(before.values()) <= 20, path
