"""FindCoordinator: groups, transactional ids and share-partitions, in the forms with one key and with many."""

import pytest

from headrace.log.metadata import new_uuid, uuid_text
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPIC = uuid_text(new_uuid())


def find(admin, key, key_type, version=6):
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    response = admin.ask(request, FindCoordinatorResponse, version)
    found = response.coordinators[0] if version >= 4 else response
    return ErrorCode(found.error_code), found.node_id


@pytest.mark.parametrize("key", [f"g:{TOPIC}:0", f"a:b:c:{TOPIC}:12"])
def test_a_share_partition_is_coordinated_here(admin, key):
    assert find(admin, key, SHARE) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "g",
        f"g:{TOPIC}",
        f":{TOPIC}:0",
        f"g:{TOPIC}:-1",
        f"g:{TOPIC}:x",
        "g:short:0",
        f"g:{TOPIC[:-1]}$:0",
    ],
)
def test_a_key_that_names_no_share_partition_is_refused(admin, key):
    assert find(admin, key, SHARE) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_share_partitions_are_found_from_version_6_on(admin, version):
    assert find(admin, f"g:{TOPIC}:0", SHARE, version) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_groups_and_transactional_ids_are_coordinated_here(admin, key_type):
    for version in range(1, 7):
        assert find(admin, "name", key_type, version) == (ErrorCode.NONE, 1)


def test_a_type_of_key_that_does_not_exist_is_refused(admin):
    assert find(admin, "x", 3) == (ErrorCode.INVALID_REQUEST, -1)
