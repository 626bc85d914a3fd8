"""Share groups on Spark: `spark.readStream.format("kafka-share")`.

The public names; each is imported when it is first used, because executors need little of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.spark.parsing import parse_avro, parse_json
    from headrace.spark.processing import process
    from headrace.spark.source import register

__all__ = ["parse_avro", "parse_json", "process", "register"]
_MODULES = {"parse_avro": "parsing", "parse_json": "parsing", "process": "processing", "register": "source"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace.spark' has no attribute {name!r}")
    return getattr(import_module(f"headrace.spark.{_MODULES[name]}"), name)
