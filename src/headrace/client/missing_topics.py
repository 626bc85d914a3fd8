"""Tells of subscribed topics that do not exist: often their name is misspelled."""

import contextlib
import logging
from collections.abc import Collection

from headrace.base.names import nearest
from headrace.client.cluster import Cluster
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.client")


async def warn_of_missing_topics(cluster: Cluster, topics: Collection[str], group: str) -> None:
    """One warning for each. `group` is its kind and name, such as "share group 'mailers'"."""
    with contextlib.suppress(KafkaError):
        await cluster.refresh(topics)
        missing = [
            topic
            for topic in topics
            if cluster.topic_errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if not missing:
            return
        existing = await cluster.topic_names()
        for topic in sorted(missing):
            found = nearest(topic, existing)
            logger.warning(
                "Topic %r, to which %s is subscribed, does not exist%s. The consumer waits for it: create it "
                "(`headrace topic create %s`), or subscribe to another one.",
                topic, group, f"; the nearest name is {found!r}" if found else "", topic,
            )  # fmt: skip
