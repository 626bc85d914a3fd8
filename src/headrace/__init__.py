"""Kafka as a queue, in Python, processed on Spark."""

from typing import TYPE_CHECKING, Any

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `import headrace` stays fast, whatever of it you need."""
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
