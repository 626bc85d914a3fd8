"""Which topics are dead-letter topics: one rule for the command line, the dashboard and everybody else."""

import asyncio
from collections.abc import Sequence

from headrace.client.admin.call import Call
from headrace.client.admin.configs import Resource, describe_config
from headrace.client.admin.groups import list_groups
from headrace.client.admin.results import GroupType
from headrace.client.admin.topics import list_topics
from headrace.wire.errors import KafkaError

GROUP_NAMES_TOPIC = "errors.deadletterqueue.topic.name"
TOPIC_ALLOWS_GROUPS = "errors.deadletterqueue.group.enable"
PREFIXES = ("dlq.", "dlq-")
SUFFIXES = (".dlq", "-dlq", ".dead", "-dead", ".dead-letters", "-dead-letters", ".dlt", "-dlt")
AT_A_TIME = 50
"""How many configs are asked for at the same time."""


async def find_dead_letter_topics(call: Call) -> list[str]:
    """Topics whose name looks like it, that groups may write dead letters to, or that a share group names."""
    names = [topic.name for topic in await list_topics(call, internal=False)]
    groups = [group.group_id for group in await list_groups(call, types=[GroupType.SHARE], states=())]
    found = {name for name in names if has_dead_letter_name(name)}
    others = [name for name in names if name not in found]
    allowed = await _values(call, Resource.TOPIC, others, TOPIC_ALLOWS_GROUPS)
    found.update(name for name, value in zip(others, allowed, strict=True) if value == "true")
    found.update(await _values(call, Resource.GROUP, groups, GROUP_NAMES_TOPIC))
    return sorted(found.intersection(names))


def has_dead_letter_name(topic: str) -> bool:
    lowered = topic.lower()
    return lowered.startswith(PREFIXES) or lowered.endswith(SUFFIXES)


async def _values(call: Call, resource: Resource, names: Sequence[str], key: str) -> list[str]:
    """A config of each; "" where it is not set, or may not be seen."""
    values: list[str] = []

    async def value(name: str) -> str:
        try:
            entry = (await describe_config(call, resource, name)).get(key)
        except KafkaError:
            return ""
        return "" if entry is None else entry.value or ""

    for begin in range(0, len(names), AT_A_TIME):
        values += await asyncio.gather(*(value(name) for name in names[begin : begin + AT_A_TIME]))
    return values
