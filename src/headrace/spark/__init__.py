"""Share groups on Spark: `spark.readStream.format("kafka-share")`.

The public names; each is imported when it is first used, because executors need little of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.spark.source import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    if name == "register":
        from headrace.spark.source import register

        return register
    raise AttributeError(f"module 'headrace.spark' has no attribute {name!r}")
