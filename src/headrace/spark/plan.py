"""What stands between the sources and `process`: what would lose a released record, or mistake one for another.

`dropDuplicates` keeps in Spark's state what it has seen. A released record comes again with the same values and a
higher deliveryCount: unless deliveryCount is one of the columns, it is a duplicate of itself, never reaches the
function, and is accepted with the rest of the micro-batch. With a watermark, it may also be late.

An outcome names a record and not the group that delivered it. Where a query has a topic under two groups, it would be
carried out in both.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from headrace.spark.errors import OptionError
from headrace.spark.options import SourceOptions

SOURCE = "kafka-share"
_LOST = (
    "before process: a record that is released and comes again is dropped there{why}, and accepted without having "
    "been processed. "
)
_CURE = "drop duplicates inside the function, or use acknowledge=handoff, which has no release."


def require_redeliveries_pass(df: DataFrame, delivery_count: str) -> None:
    """OptionError when a stream of ours is deduplicated; `delivery_count` is the metadata that marks our column."""
    nodes = _classic(df, delivery_count) if hasattr(df, "_jdf") else _connect(df)
    for has_watermark, has_delivery_count in nodes:
        if has_watermark:
            raise OptionError(
                f"dropDuplicates with a watermark {_LOST.format(why=' as a duplicate, or as late')}{_CURE.capitalize()}"
            )
        if not has_delivery_count:
            raise OptionError(
                f"dropDuplicates without deliveryCount {_LOST.format(why=' as a duplicate of itself')}Add the column, "
                f'dropDuplicates([..., "deliveryCount"]), {_CURE}'
            )


def require_one_group(df: DataFrame) -> None:
    """OptionError when the query reads a topic under several groups."""
    sources = map(SourceOptions.parse, _options_of(df))
    found = topic_of_two_groups((source.group, source.topics) for source in sources)
    if found is not None:
        raise OptionError(found)


def topic_of_two_groups(sources: Iterable[tuple[str, Iterable[str]]]) -> str | None:
    """Why outcomes are not clear, if so: two of these sources, given by group and topics, have a topic in common."""
    groups: dict[str, str] = {}
    for group, topics in sources:
        for topic in topics:
            other = groups.setdefault(topic, group)
            if other != group:
                return (
                    f"the query reads topic {topic!r} under groups {other!r} and {group!r}. An outcome names a record "
                    "by topic, partition, offset and deliveryCount, so it would count in both groups. Give each group "
                    "a query of its own."
                )
    return None


def _options_of(df: Any) -> Iterator[Mapping[str, str]]:
    """Of each source of ours; a Connect client knows nothing of what is behind a view."""
    if hasattr(df, "_jdf"):
        for node in _below(df._jdf.queryExecution().analyzed()):
            if _is_ours(node):
                yield dict(node.extraOptions())
    else:
        for node in _below_connect(df._plan):
            if getattr(node, "_format", None) == SOURCE:
                yield dict(node._options)


def _classic(df: Any, delivery_count: str) -> Iterator[tuple[bool, bool]]:
    """For each operator that drops duplicates of ours: has it a watermark below it, and deliveryCount as a key?"""
    for node in _below(df._jdf.queryExecution().analyzed()):
        name = node.nodeName()
        if not node.isStreaming() or name not in ("Deduplicate", "DeduplicateWithinWatermark", "Distinct"):
            continue
        below = list(_below(node))
        if not any(_is_ours(leaf) for leaf in below):
            continue
        keys = _items(node.output() if name == "Distinct" else node.keys())
        yield (
            any(each.nodeName() == "EventTimeWatermark" for each in below),
            any(key.metadata().contains(delivery_count) for key in keys),
        )


def _is_ours(node: Any) -> bool:
    return bool(node.nodeName() == "StreamingRelationV2" and node.sourceName() == SOURCE)


def _below(node: Any) -> Iterator[Any]:
    yield node
    for child in _items(node.children()):
        yield from _below(child)


def _items(sequence: Any) -> Iterator[Any]:
    """Of a Scala Seq."""
    return (sequence.apply(index) for index in range(sequence.size()))


def _connect(df: Any) -> Iterator[tuple[bool, bool]]:
    """The same from the plan of a Connect client, which has names only, and nothing of what is behind a view."""
    for node in _below_connect(df._plan):
        if type(node).__name__ != "Deduplicate":
            continue
        below = list(_below_connect(node))
        if any(getattr(each, "_format", None) == SOURCE for each in below):
            yield (
                any(type(each).__name__ == "WithWatermark" for each in below),
                node.all_columns_as_keys or "deliveryCount" in (node.column_names or ()),
            )


def _below_connect(node: Any) -> Iterator[Any]:
    yield node
    for child in vars(node).values():
        if hasattr(child, "_create_proto_relation"):
            yield from _below_connect(child)
