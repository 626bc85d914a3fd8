"""What Dramatiq's tests import from a module that its source archive leaves out."""

import contextlib
import os
import platform
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Worker

RABBITMQ_USERNAME = RABBITMQ_PASSWORD = "guest"
RABBITMQ_CREDENTIALS = None
skip_unless_rabbit_mq = pytest.mark.skip(reason="tests RabbitMQ's connections")
skip_in_ci = pytest.mark.skipif(os.environ.get("CI") == "true", reason="skipped in CI")
skip_on_windows = pytest.mark.skipif(platform.system() == "Windows", reason="skipped on Windows")
skip_on_pypy = pytest.mark.skipif(platform.python_implementation() == "PyPy", reason="skipped on PyPy")


@contextlib.contextmanager
def worker(*arguments: Any, **keywords: Any) -> Iterator[Worker]:
    one = Worker(*arguments, **keywords)
    one.start()
    try:
        yield one
    finally:
        one.stop()
