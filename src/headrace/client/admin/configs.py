"""Configs of topics, groups and brokers: read them, set them, put them back to their defaults."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from headrace.base.settings import ConfigType
from headrace.client.admin.call import AdminCall, in_parallel
from headrace.client.admin.results import ConfigEntry
from headrace.client.cluster import ANY
from headrace.client.errors import error_for
from headrace.wire.enums import AlterOperation, ConfigResourceType, ConfigSource
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

N = TypeVar("N", ConfigSource, ConfigType)
Value = str | int | float | bool
SEEN_S_MAX = 5.0
LOOK_S = 0.02


def as_text(value: Value) -> str:
    """As Kafka writes it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def describe_config(
    call: AdminCall, resource: ConfigResourceType, name: str, *, node_id: int = ANY
) -> dict[str, ConfigEntry]:
    asked = DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=None)

    def read(response: DescribeConfigsResponse) -> dict[str, ConfigEntry]:
        (result,) = response.results
        if result.error_code:
            raise error_for(result.error_code, result.error_message, about=_about(resource, name))
        return {one.name: _entry(one) for one in sorted(result.configs, key=lambda one: one.name)}

    request = DescribeConfigsRequest(resources=[asked], include_documentation=True)
    return await call.ask(request, read, node_id=node_id)


async def set_config(
    call: AdminCall, resource: ConfigResourceType, name: str, changes: Mapping[str, Value | None]
) -> None:
    """All of the changes or none; None takes a setting back to its default."""
    if not changes:
        return
    wanted = {key: None if value is None else as_text(value) for key, value in changes.items()}
    configs = [
        AlterableConfig(
            name=key,
            config_operation=AlterOperation.DELETE if value is None else AlterOperation.SET,
            value=value,
        )
        for key, value in wanted.items()
    ]
    asked = AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)

    def read(response: IncrementalAlterConfigsResponse) -> None:
        (result,) = response.responses
        if result.error_code:
            raise error_for(result.error_code, result.error_message, about=_about(resource, name))

    await call.ask(IncrementalAlterConfigsRequest(resources=[asked]), read)
    await _until_seen(call, resource, name, wanted)


async def _until_seen(
    call: AdminCall, resource: ConfigResourceType, name: str, wanted: Mapping[str, str | None]
) -> None:
    """Brokers hear of the change a moment after the controller has made it: whoever acts next relies on it.

    The change is made in any case, so this gives up without a word when a broker is away, or when somebody else has
    changed it meanwhile.
    """

    async def is_seen(node_id: int) -> bool:
        now = await describe_config(call, resource, name, node_id=node_id)
        return all(_shows(now.get(key), value, resource) for key, value in wanted.items())

    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(SEEN_S_MAX):
            while True:
                if all(await in_parallel(is_seen(node_id) for node_id in call.cluster.nodes)):
                    return
                await asyncio.sleep(LOOK_S)


def _shows(entry: ConfigEntry | None, value: str | None, resource: ConfigResourceType) -> bool:
    if entry is None or entry.is_sensitive:
        return True
    if value is None:
        return entry.source is not (
            ConfigSource.GROUP if resource is ConfigResourceType.GROUP else ConfigSource.DYNAMIC_TOPIC
        )
    return (entry.value or "").lower() == value.strip().lower()


def _about(resource: ConfigResourceType, name: str) -> str:
    return f"{resource.name.lower()} {name!r}"


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=result.name,
        value=result.value,
        source=_known(ConfigSource, result.config_source),
        is_read_only=result.read_only,
        is_sensitive=result.is_sensitive,
        type=_known(ConfigType, result.config_type),
        documentation=result.documentation or None,
    )


def _known(kind: type[N], number: int) -> N:
    """A broker may be newer than this client."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
