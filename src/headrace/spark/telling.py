"""Errors that begin with what is wrong: without the traceback that Spark puts before the text of a Python error.

Errors of ours say what is wrong and what to do about it. Spark sends any error in one of its Python processes to the
JVM with its traceback, and the sentence stood in the middle of 65 lines. It leaves the traceback out where the variable
SPARK_HIDE_TRACEBACK is set, and looks that up when the error has reached it. The process ends then, so nothing else is
hidden. The traceback is logged by `headrace.spark` at level DEBUG. Errors of tasks that read records keep it: by it,
`process` tells them from errors of the user's function.
"""

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from headrace.spark.errors import SourceError
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.spark")
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


def plainly(function: Function) -> Function:
    """For functions that Spark calls in a process of its own."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except (SourceError, KafkaError):
            _hide_traceback()
            raise

    return call  # type: ignore[return-value]


def plainly_each(items: Iterable[T]) -> Iterator[T]:
    """The same for what such a function yields."""
    try:
        yield from items
    except (SourceError, KafkaError):
        _hide_traceback()
        raise


def is_told() -> bool:
    """Whether this process is about to end with an error that Spark shows without what came before it."""
    return _is_sparks(sys.modules.get("__main__")) and os.environ.get(HIDE_TRACEBACK) == "1"


def _hide_traceback() -> None:
    logger.debug("This error is reported to Spark without its traceback:", exc_info=True)
    if _is_sparks(sys.modules.get("__main__")):
        os.environ[HIDE_TRACEBACK] = "1"


def _is_sparks(main: Any) -> bool:
    """Whether this process was started by Spark to run Python, as `python -m pyspark.daemon` or the like."""
    name = getattr(getattr(main, "__spec__", None), "name", "")
    return name.startswith("pyspark.")
