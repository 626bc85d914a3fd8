"""Which topics are dead-letter topics: one rule for the command line, the dashboard and everybody else."""

from collections.abc import Sequence

from headrace.client.admin.call import AdminCall
from headrace.client.admin.groups import list_groups
from headrace.client.admin.topics import list_topics
from headrace.wire.enums import ConfigResourceType, GroupType
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse

GROUP_NAMES_TOPIC = "errors.deadletterqueue.topic.name"
TOPIC_ALLOWS_GROUPS = "errors.deadletterqueue.group.enable"
PREFIXES = ("dlq.", "dlq-")
SUFFIXES = (".dlq", "-dlq", ".dead", "-dead", ".dead-letters", "-dead-letters", ".dlt", "-dlt")
AT_A_TIME = 200
"""How many topics or groups one request asks about."""


async def find_dead_letter_topics(
    call: AdminCall, topics: Sequence[str] | None = None, groups: Sequence[str] | None = None
) -> list[str]:
    """Topics whose name looks like it, that groups may write dead letters to, or that a share group names.

    Who has listed the topics and the share groups already gives their names.
    """
    names = topics
    if names is None:
        names = [topic.name for topic in await list_topics(call, internal=False)]
    if groups is None:
        groups = [group.group_id for group in await list_groups(call, types=[GroupType.SHARE], states=())]
    found = {name for name in names if has_dead_letter_name(name)}
    others = [name for name in names if name not in found]
    allowed = await _values(call, ConfigResourceType.TOPIC, others, TOPIC_ALLOWS_GROUPS)
    found.update(name for name, value in zip(others, allowed, strict=True) if value == "true")
    found.update(await _values(call, ConfigResourceType.GROUP, groups, GROUP_NAMES_TOPIC))
    return sorted(found.intersection(names))


def has_dead_letter_name(topic: str) -> bool:
    lowered = topic.lower()
    return lowered.startswith(PREFIXES) or lowered.endswith(SUFFIXES)


async def _values(call: AdminCall, resource: ConfigResourceType, names: Sequence[str], key: str) -> list[str]:
    """A config of each; "" where it is not set, or may not be seen."""
    values: dict[str, str] = {}

    def read(response: DescribeConfigsResponse) -> None:
        for result in response.results:
            found = [one.value for one in result.configs if one.name == key]
            values[result.resource_name] = (found[0] or "") if found else ""

    for begin in range(0, len(names), AT_A_TIME):
        asked = [
            DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=[key])
            for name in names[begin : begin + AT_A_TIME]
        ]
        await call.ask(DescribeConfigsRequest(resources=asked), read)
    return [values.get(name, "") for name in names]
