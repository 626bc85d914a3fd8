"""ACLs through `Admin`, `AsyncAdmin` and `headrace acl`, on both brokers."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from headrace import Admin, AsyncAdmin
from headrace.cli.app import app
from headrace.client.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    SomeFailedError,
)
from headrace.client.errors import InvalidRequestError
from tests.conformance.access.site import Site
from tests.conformance.steps import wait_for


def entry(name: str, **fields: object) -> Acl:
    wanted = Acl(
        AclResourceType.TOPIC,
        name,
        AclPatternType.LITERAL,
        f"User:{name}",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    return wanted._replace(**fields)  # type: ignore[arg-type]


def test_admin_creates_describes_and_deletes(site: Site, unique: str) -> None:
    acl, other = entry(unique), entry(unique, permission=AclPermission.DENY)
    mine = AclFilter(principal=f"User:{unique}")
    with Admin(bootstrap_servers=site.servers) as admin:
        admin.create_acls([acl, other])
        assert wait_for(lambda: set(admin.describe_acls(mine)) == {acl, other})
        assert admin.delete_acls([mine._replace(permission=AclPermission.DENY)]) == [other]
        assert wait_for(lambda: admin.describe_acls(mine) == [acl])
        assert acl in admin.describe_acls()


def test_the_asynchronous_admin_does_the_same(site: Site, unique: str) -> None:
    async def run() -> list[Acl]:
        async with AsyncAdmin(bootstrap_servers=site.servers) as admin:
            await admin.create_acls([entry(unique)])
            return await admin.delete_acls([AclFilter(principal=f"User:{unique}")])

    assert asyncio.run(run()) == [entry(unique)]


def test_an_error_names_the_entry(site: Site, unique: str) -> None:
    wrong = entry("mine", resource_type=AclResourceType.CLUSTER)
    with Admin(bootstrap_servers=site.servers) as admin:
        with pytest.raises(InvalidRequestError, match="ACL for User:mine on cluster 'mine'"):
            admin.create_acls([wrong])
        with pytest.raises(SomeFailedError) as caught:
            admin.create_acls([entry(unique), wrong])
        assert list(caught.value.errors) == [wrong]


class Command:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def __call__(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["acl", *arguments, "-b", self._servers])
        assert result.exit_code == code, result.output
        return result.output

    def entries(self, *arguments: str) -> list[tuple[str, str, str]]:
        """Operation, resource and name of what a command lists."""
        found = json.loads(self(*arguments, "--json"))
        return sorted((acl["operation"], acl["resource_type"], acl["resource_name"]) for acl in found)


@pytest.fixture
def acl(site: Site) -> Command:
    return Command(site.servers)


def test_the_command_gives_a_producer_what_it_needs(acl: Command, unique: str) -> None:
    who = f"User:{unique}"
    text = acl("add", "--allow", who, "--producer", "--topic", unique, "--transactional-id", unique)
    assert text.startswith("Added 5 entries:\nPERMISSION  PRINCIPAL")
    expected = [
        ("create", "topic", unique),
        ("describe", "topic", unique),
        ("describe", "transactional_id", unique),
        ("write", "topic", unique),
        ("write", "transactional_id", unique),
    ]
    assert wait_for(lambda: acl.entries("list", "--principal", who) == expected)


@pytest.mark.parametrize("role", ["--consumer", "--share-consumer"])
def test_the_command_gives_a_consumer_what_it_needs(acl: Command, unique: str, role: str) -> None:
    acl("add", "--allow", f"User:{unique}", role, "--topic", unique, "--group", unique)
    expected = [("describe", "topic", unique), ("read", "group", unique), ("read", "topic", unique)]
    assert wait_for(lambda: acl.entries("list", "--principal", f"User:{unique}") == expected)


def test_the_command_lists_what_applies_to_a_resource_and_deletes_what_is_meant(
    acl: Command, unique: str
) -> None:
    who = f"User:{unique}"
    acl("add", "--allow", who, "-o", "read", "--topic", f"{unique}-", "--prefixed")
    acl("add", "--deny", who, "-o", "alter-configs", "--topic", f"{unique}-orders", "--host", "10.0.0.1")
    by_prefix = ("read", "topic", f"{unique}-")
    literal = ("alter_configs", "topic", f"{unique}-orders")
    about = ("list", "--principal", who, "--topic")
    assert wait_for(lambda: acl.entries(*about, f"{unique}-orders") == [literal, by_prefix])
    assert acl.entries(*about, f"{unique}-other") == [by_prefix]
    assert "Use --yes" in acl("delete", "--principal", who, code=1)
    deleted = acl.entries("delete", "--principal", who, "--topic", f"{unique}-", "--prefixed", "--yes")
    assert deleted == [by_prefix]
    assert wait_for(lambda: acl.entries("list", "--principal", who) == [literal])
    assert "no entry matches" in acl("delete", "--principal", f"{who}-nobody", "--yes", code=1)


def test_the_command_says_what_is_missing(acl: Command) -> None:
    assert "no principal is given" in acl("add", "--topic", "t", code=1)
    assert "no resource is given" in acl("add", "--allow", "User:a", code=1)
    assert "need --group" in acl("add", "--allow", "User:a", "--consumer", "--topic", "t", code=1)
    assert "would delete every entry" in acl("delete", code=1)
    assert "'fly' is not an operation" in acl("add", "--allow", "User:a", "-o", "fly", "--topic", "t", code=2)
