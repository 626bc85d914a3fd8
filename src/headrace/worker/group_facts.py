"""What a worker must know of its share group before it starts: how often records come, and who writes dead letters."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import ConfigEntry
from headrace.client.settings import ClientSettings
from headrace.wire.enums import ConfigSource
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.worker")

RESET = "share.auto.offset.reset"
LIMIT = "share.delivery.count.limit"
BROKER_LIMIT = "group.share.delivery.count.limit"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DELIVERY_LIMIT_DEFAULT = 5
"""Kafka's default."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    delivery_limit: int = DELIVERY_LIMIT_DEFAULT
    broker_dead_letters: str | None = None
    """The topic to which the broker itself copies what is rejected (Kafka 4.4, `share.version=2`)."""


def facts_of(configs: Mapping[str, ConfigEntry], share_version: int) -> GroupFacts:
    def value(name: str) -> str:
        entry = configs.get(name)
        return (entry.value or "") if entry is not None else ""

    limit = value(LIMIT) or value(BROKER_LIMIT)
    return GroupFacts(
        delivery_limit=int(limit) if limit.isdigit() else DELIVERY_LIMIT_DEFAULT,
        broker_dead_letters=value(DEAD_LETTER_TOPIC) or None if share_version >= 2 else None,
    )


async def prepare_group(settings: ClientSettings, group_id: str, *, start_from: str | None) -> GroupFacts:
    """Reads the group's settings, and gives a group that has no start of its own the one that a queue needs.

    Kafka lets a new share group start at the end: tasks sent before the first worker came would never be done. A
    worker without the rights for this goes on with what it can know, and says so.
    """
    async with AsyncAdmin(settings) as admin:
        try:
            configs = await admin.group_config(group_id)
            if LIMIT not in configs:  # Kafka 4.2 has it for the whole broker alone
                configs = {**await admin.broker_config(), **configs}
            features = await admin.features()
        except KafkaError as error:
            logger.warning(
                "group %s: its settings cannot be read (%s); a delivery limit of %d is assumed",
                group_id, error, DELIVERY_LIMIT_DEFAULT,
            )  # fmt: skip
            return GroupFacts()
        entry = configs.get(RESET)
        if start_from is not None and (entry is None or entry.source is not ConfigSource.GROUP):
            try:
                await admin.set_group_config(group_id, {RESET: start_from})
                logger.info("group %s: %s is now %s", group_id, RESET, start_from)
            except KafkaError as error:
                logger.warning(
                    "group %s: %s stays %s (%s); records sent before its first worker started may never be processed",
                    group_id, RESET, entry.value if entry else "latest", error,
                )  # fmt: skip
        return facts_of(configs, features.finalized.get("share.version", 1))
