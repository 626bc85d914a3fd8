"""The fixtures of Dramatiq's tests, which its source archive leaves out: every broker is a `HeadraceBroker`."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.rate_limits.backends import StubBackend as RateLimits
from dramatiq.results.backends import StubBackend

from headrace.adapters.dramatiq import HeadraceBroker


class SuiteBroker(HeadraceBroker):
    """`join` takes the options of other brokers, and raises what an actor has failed with, as the stub broker's does.

    RabbitMQ's has `min_successes`: it must find the queue empty so many times. Ours knows it the first time.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.errors: list[tuple[str, BaseException | None]] = []

    def emit_after(self, signal: str, *arguments: Any, **keywords: Any) -> None:
        if signal == "nack":
            (message,) = arguments
            self.errors.append((message.queue_name, message._exception))
        super().emit_after(signal, *arguments, **keywords)

    def join(
        self,
        queue_name: str,
        *,
        interval: int = 100,
        timeout: int | None = None,
        min_successes: int = 0,
        fail_fast: bool | None = None,
    ) -> None:
        super().join(queue_name, interval=interval, timeout=timeout)
        failed = [error for name, error in self.errors if name == queue_name]
        self.errors.clear()
        if failed and self.raises_errors and fail_fast is not False:
            raise failed[0] or RuntimeError("an actor has failed")

    raises_errors = False


@pytest.fixture
def broker() -> Iterator[SuiteBroker]:
    name = f"dramatiq-{uuid.uuid4().hex}"
    broker = SuiteBroker(os.environ["HEADRACE_SUITE_SERVERS"], group_id=name)
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def working(broker: SuiteBroker) -> Iterator[dramatiq.Worker]:
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def stub_broker(broker: SuiteBroker) -> SuiteBroker:
    broker.raises_errors = True
    return broker


@pytest.fixture
def stub_worker(working: dramatiq.Worker) -> dramatiq.Worker:
    return working


@pytest.fixture
def rabbitmq_broker(broker: SuiteBroker) -> SuiteBroker:
    return broker


@pytest.fixture
def rabbitmq_worker(working: dramatiq.Worker) -> dramatiq.Worker:
    return working


@pytest.fixture
def result_backend() -> StubBackend:
    return StubBackend()


@pytest.fixture
def redis_result_backend(result_backend: StubBackend) -> StubBackend:
    return result_backend


@pytest.fixture
def stub_result_backend(result_backend: StubBackend) -> StubBackend:
    return result_backend


@pytest.fixture
def rate_limiter_backend() -> RateLimits:
    return RateLimits()
