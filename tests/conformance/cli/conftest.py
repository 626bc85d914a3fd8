"""`run` is the command as a person types it, on our broker and on Apache Kafka in turn."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace import ShareConsumer
from headrace.cli.app import app
from tests.conformance.conftest import BrokerUnderTest


@dataclass(frozen=True, slots=True)
class Ran:
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table, with its headers."""
        return [line.split() for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    def __init__(self, server: str) -> None:
        self._server = server

    def __call__(self, *arguments: str, status: int = 0) -> Ran:
        result = CliRunner().invoke(app, [*arguments, "-b", self._server])
        said = f"{' '.join(arguments)}: {result.stdout}{result.stderr}"
        assert result.exit_code == status, said
        assert "Traceback" not in said
        return Ran(result.stdout, result.stderr)

    def refused(self, *arguments: str) -> str:
        """What it says on standard error when it cannot do it; nothing goes to standard output."""
        ran = self(*arguments, status=1)
        assert ran.out == ""
        assert len(ran.err.splitlines()) <= 2
        return ran.err


@pytest.fixture
def run(broker: BrokerUnderTest) -> Command:
    return Command(broker.bootstrap_servers)


@pytest.fixture
def orders(run: Command, unique: str) -> str:
    """A topic of two partitions with five records in each."""
    topic = f"orders-{unique}"[:200]
    run("topic", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        run("produce", topic, "--perf", "--count", "5", "--size", "10", "--partition", partition)
    return topic


@pytest.fixture
def join(broker: BrokerUnderTest) -> Iterator[Callable[..., ShareConsumer]]:
    """A member of a share group that has polled once, so that it is one; left at the end of the test."""
    with ExitStack() as stack:

        def joined(group: str, topic: str, **settings: Any) -> ShareConsumer:
            consumer = stack.enter_context(
                ShareConsumer(
                    bootstrap_servers=broker.bootstrap_servers,
                    group_id=group,
                    share_acknowledgement_mode="explicit",
                    **settings,
                )
            )
            consumer.subscribe([topic])
            return consumer

        yield joined
