"""Access control lists: create, list and delete entries (CreateAcls, DescribeAcls, DeleteAcls)."""

from collections.abc import Iterable

from headrace.client.admin.call import AdminCall, SomeFailedError
from headrace.client.errors import error_for
from headrace.wire.acls import Acl, AclFilter, acl_of
from headrace.wire.errors import KafkaError
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_acls_response import CreateAclsResponse
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_acls_response import DescribeAclsResponse


async def create_acls(call: AdminCall, acls: Iterable[Acl]) -> None:
    wanted = list(acls)

    def read(response: CreateAclsResponse) -> None:
        failed: dict[Acl, KafkaError] = {
            acl: error_for(result.error_code, result.error_message, about=_about(acl))
            for acl, result in zip(wanted, response.results, strict=True)
            if result.error_code
        }
        _raise_any(failed, len(wanted))

    if wanted:
        await call.ask(CreateAclsRequest(creations=[_creation(acl) for acl in wanted]), read)


async def describe_acls(call: AdminCall, matching: AclFilter) -> list[Acl]:
    def read(response: DescribeAclsResponse) -> list[Acl]:
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about="ACLs")
        return [
            acl_of(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    request = DescribeAclsRequest(
        resource_type_filter=matching.resource_type,
        resource_name_filter=matching.resource_name,
        pattern_type_filter=matching.pattern_type,
        principal_filter=matching.principal,
        host_filter=matching.host,
        operation=matching.operation,
        permission_type=matching.permission,
    )
    return await call.ask(request, read)


async def delete_acls(call: AdminCall, matching: Iterable[AclFilter]) -> list[Acl]:
    wanted = list(matching)

    def read(response: DeleteAclsResponse) -> list[Acl]:
        results = list(zip(wanted, response.filter_results, strict=True))
        failed: dict[AclFilter, KafkaError] = {
            asked: error_for(result.error_code, result.error_message, about="ACLs")
            for asked, result in results
            if result.error_code
        }
        _raise_any(failed, len(wanted))
        deleted = [
            acl_of(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for _, result in results
            for acl in result.matching_acls
        ]
        return list(dict.fromkeys(deleted))

    return await call.ask(DeleteAclsRequest(filters=[_filter(asked) for asked in wanted]), read)


def _raise_any(failed: "dict[Acl, KafkaError] | dict[AclFilter, KafkaError]", total: int) -> None:
    if failed and total == 1:
        raise next(iter(failed.values()))
    if failed:
        raise SomeFailedError(failed, total)


def _about(acl: Acl) -> str:
    return f"ACL for {acl.principal} on {acl.resource_type.name.lower()} {acl.resource_name!r}"


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(matching: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=matching.resource_type,
        resource_name_filter=matching.resource_name,
        pattern_type_filter=matching.pattern_type,
        principal_filter=matching.principal,
        host_filter=matching.host,
        operation=matching.operation,
        permission_type=matching.permission,
    )
