"""`headrace acl`: who may do what. Options that say what a producer or a consumer needs are those of kafka-acls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.confirming import Yes, confirm
from headrace.cli.failures import Refused
from headrace.cli.options import CommandConfig, Json, Server, Settings, client_settings, open_admin
from headrace.cli.render import count, print_json, print_table

if TYPE_CHECKING:
    from headrace.wire.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType

app = typer.Typer(help="Add, list and delete access control lists.", no_args_is_help=True)
_RESOURCES = "Resources"


def _resources(name: str, what: str) -> Any:
    return typer.Option(
        name, metavar="NAME", help=f"{what}; * stands for all. Can be repeated.", rich_help_panel=_RESOURCES
    )


Topics = Annotated[list[str] | None, _resources("--topic", "A topic")]
Groups = Annotated[list[str] | None, _resources("--group", "A group of any type")]
TransactionalIds = Annotated[list[str] | None, _resources("--transactional-id", "A transactional ID")]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.", rich_help_panel=_RESOURCES)]
Prefixed = Annotated[
    bool,
    typer.Option("--prefixed", help="Treat the names as prefixes.", rich_help_panel=_RESOURCES),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="OPERATION",
        help="read, write, describe, create, delete, alter, describe_configs, alter_configs, cluster_action, "
        "idempotent_write or all. Can be repeated.",
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="ADDRESS", help="The address of the client. Can be repeated.", show_default="*"
    ),
]


@dataclass(frozen=True, slots=True)
class _Resource:
    kind: "AclResourceType"
    name: str


@app.command()
def add(
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="User:NAME",
            help="The principal to allow, such as User:ann. User:* stands for everybody. Can be repeated.",
        ),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(
            "--deny",
            metavar="User:NAME",
            help="The principal to deny. A denial takes precedence over permissions. Can be repeated.",
        ),
    ] = None,
    operations: Operations = None,
    hosts: Hosts = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    producer: Annotated[
        bool,
        typer.Option("--producer", help="What a producer needs: write, describe and create on --topic."),
    ] = False,
    consumer: Annotated[
        bool,
        typer.Option(
            "--consumer", help="What a consumer needs: read and describe on --topic, read on --group."
        ),
    ] = False,
    share_consumer: Annotated[
        bool, typer.Option("--share-consumer", help="What a member of a share group needs: as --consumer.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Allow or deny something.

    \b
    headrace acl add --allow User:web --producer --topic orders
    headrace acl add --allow User:ann --share-consumer --topic orders --group ann
    headrace acl add --allow User:ops -o alter -o describe --cluster
    headrace acl add --deny User:web --operation all --topic audit- --prefixed
    """
    from headrace.wire.acls import Acl, AclPatternType, AclPermission

    resources = _chosen(topics, groups, transactional_ids, cluster)
    if not resources:
        raise Refused("no resource is given: use --topic, --group, --transactional-id or --cluster.")
    if not allow and not deny:
        raise Refused("no principal is given: use --allow User:NAME or --deny User:NAME.")
    is_role = producer or consumer or share_consumer
    if is_role and (operations or deny):
        raise Refused(
            "--producer, --consumer and --share-consumer imply the operations; omit --operation and --deny."
        )
    pattern = AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL
    wanted = (
        _roles(resources, producer=producer, consumer=consumer or share_consumer)
        if is_role
        else [(resource, operation) for resource in resources for operation in _operations(operations)]
    )
    acls = [
        Acl(resource.kind, resource.name, pattern, principal, host, operation, permission)
        for principals, permission in ((allow, AclPermission.ALLOW), (deny, AclPermission.DENY))
        for principal in principals or ()
        for host in hosts or ["*"]
        for resource, operation in wanted
    ]
    with open_admin(client_settings(server, settings, command_config)) as admin:
        admin.create_acls(acls)
    _show(acls, json, "Added")


@app.command("list")
def list_(
    principals: Annotated[
        list[str] | None, typer.Option("--principal", metavar="User:NAME", help="Only entries of these.")
    ] = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    cluster: OnCluster = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List entries: all of them, or those that apply to a resource.

    \b
    headrace acl list
    headrace acl list --topic orders      # also by prefix, and for all topics
    """
    from headrace.wire.acls import AclFilter, AclPatternType

    filters = [
        AclFilter(resource.kind, resource.name, AclPatternType.MATCH)
        for resource in _chosen(topics, groups, transactional_ids, cluster)
    ] or [AclFilter()]
    with open_admin(client_settings(server, settings, command_config)) as admin:
        found = [acl for each in filters for acl in admin.describe_acls(each)]
    _show([acl for acl in dict.fromkeys(found) if not principals or acl.principal in principals], json, "")


@app.command()
def delete(
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal", metavar="User:NAME", help="Entries of these principals. Can be repeated."
        ),
    ] = None,
    operations: Operations = None,
    hosts: Hosts = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    yes: Yes = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete the entries with these principals, operations, hosts and resources; what you leave out matches all.

    \b
    headrace acl delete --principal User:web --topic orders
    """
    resources = _chosen(topics, groups, transactional_ids, cluster)
    if not (principals or resources):
        raise Refused("this would delete every entry: use --principal, --topic, --group or another resource.")
    filters = _filters(resources, principals, hosts, operations, is_prefixed=prefixed)
    with open_admin(client_settings(server, settings, command_config)) as admin:
        found = dict.fromkeys(acl for each in filters for acl in admin.describe_acls(each))
        if not found:
            raise Refused("no entry matches; `headrace acl list` shows all.")
        confirm(f"delete {_entries(len(found))}", yes=yes)
        deleted = admin.delete_acls(filters)
    _show(deleted, json, "Deleted")


def _filters(
    resources: list[_Resource],
    principals: list[str] | None,
    hosts: list[str] | None,
    operations: list[str] | None,
    *,
    is_prefixed: bool,
) -> "list[AclFilter]":
    from headrace.wire.acls import AclFilter, AclOperation, AclPatternType, AclResourceType

    pattern = AclPatternType.PREFIXED if is_prefixed else AclPatternType.LITERAL
    places: list[tuple[AclResourceType, str | None, AclPatternType]]
    places = [(resource.kind, resource.name, pattern) for resource in resources] or [
        (AclResourceType.ANY, None, AclPatternType.PREFIXED if is_prefixed else AclPatternType.ANY)
    ]
    chosen = _operations(operations) if operations else [AclOperation.ANY]
    return [
        AclFilter(*place, principal, host, operation)
        for place in places
        for principal in _or_any(principals)
        for host in _or_any(hosts)
        for operation in chosen
    ]


def _or_any(given: list[str] | None) -> Sequence[str | None]:
    return given or [None]


def _chosen(
    topics: list[str] | None, groups: list[str] | None, transactional_ids: list[str] | None, cluster: bool
) -> list[_Resource]:
    from headrace.wire.acls import CLUSTER_NAME, AclResourceType

    return [
        *(_Resource(AclResourceType.TOPIC, name) for name in topics or ()),
        *(_Resource(AclResourceType.GROUP, name) for name in groups or ()),
        *(_Resource(AclResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ()),
        *([_Resource(AclResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]


def _operations(given: list[str] | None) -> "list[AclOperation]":
    from headrace.wire.acls import AclOperation

    known = {operation.name.lower(): operation for operation in AclOperation if operation > AclOperation.ANY}
    found = []
    for name in given or ["all"]:
        operation = known.get(name.lower().replace("-", "_"))
        if operation is None:
            raise typer.BadParameter(
                f"{name!r} is not an operation; the operations are {', '.join(known)}",
                param_hint="--operation",
            )
        found.append(operation)
    return found


def _roles(
    resources: list[_Resource], *, producer: bool, consumer: bool
) -> "list[tuple[_Resource, AclOperation]]":
    """What kafka-acls gives a producer or a consumer."""
    from headrace.wire.acls import AclOperation as Op
    from headrace.wire.acls import AclResourceType as Kind

    kinds = {resource.kind for resource in resources}
    if Kind.TOPIC not in kinds:
        raise Refused("--producer, --consumer and --share-consumer need --topic.")
    if consumer and Kind.GROUP not in kinds:
        raise Refused("--consumer and --share-consumer need --group.")
    needs: dict[Kind, set[Op]] = {}
    if producer:
        needs = {
            Kind.TOPIC: {Op.WRITE, Op.DESCRIBE, Op.CREATE},
            Kind.TRANSACTIONAL_ID: {Op.WRITE, Op.DESCRIBE},
        }
    if consumer:
        needs[Kind.TOPIC] = needs.get(Kind.TOPIC, set()) | {Op.READ, Op.DESCRIBE}
        needs[Kind.GROUP] = {Op.READ}
    return [
        (resource, operation) for resource in resources for operation in sorted(needs.get(resource.kind, ()))
    ]


def _show(acls: "list[Acl]", json: bool, done: str) -> None:
    if json:
        print_json(acls)
        return
    if done:
        typer.echo(f"{done} {_entries(len(acls))}:")
    print_table(
        ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME", "PATTERN"),
        [
            (
                _word(acl.permission),
                acl.principal,
                acl.host,
                _word(acl.operation),
                _word(acl.resource_type),
                acl.resource_name,
                acl.pattern_type.name.lower(),
            )
            for acl in sorted(acls)
        ],
    )


def _entries(number: int) -> str:
    return count(number, "entry").replace("entrys", "entries")


def _word(code: "AclPermission | AclOperation | AclResourceType") -> str:
    return code.name.lower()
