"""ApiVersions (18): what a client learns before it says anything else."""

import struct

import pytest

from headrace.wire.apis import API_VERSIONS
from headrace.wire.codec import read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from tests.conformance.wire_client import WireClient

SPOKEN = {(0, 4), (0, 5)}
"""By Kafka 4.3, and from 4.4 on."""
NAMED = {"client_software_name": "conformance", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_is_answered_with_the_ranges_of_all_apis(wire: WireClient, version: int) -> None:
    response = wire.send(ApiVersionsRequest(**NAMED), version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert response.error_code == 0
    assert ranges[API_VERSIONS] in SPOKEN
    assert all(low <= high for low, high in ranges.values())


def test_a_version_from_the_future_is_answered_in_version_0_with_the_range_to_use(wire: WireClient) -> None:
    # KIP-511: the client cannot know yet what we speak, so the answer is one that every client can read.
    wire.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 7, -1) + b"\x00")
    frame = wire.receive_frame()
    assert frame is not None
    response, _ = read_message(ApiVersionsResponse, 0, frame, 4)
    assert struct.unpack_from(">i", frame) == (7,)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (api,) = response.api_keys
    assert api.api_key == API_VERSIONS
    assert (api.min_version, api.max_version) in SPOKEN


@pytest.mark.parametrize("name", ["", "-starts-with-a-dash", "has space"])
def test_a_software_name_that_is_no_name_is_refused(wire: WireClient, name: str) -> None:
    response = wire.send(ApiVersionsRequest(client_software_name=name, client_software_version="1.0"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_version_4_may_name_features_that_start_at_version_0(wire: WireClient) -> None:
    old = {feature.name for feature in wire.send(ApiVersionsRequest(**NAMED), 3).supported_features}
    new = {
        feature.name: feature.min_version
        for feature in wire.send(ApiVersionsRequest(**NAMED), 4).supported_features
    }
    assert old <= set(new)
    assert {"metadata.version", "transaction.version", "group.version"} <= set(new)
    assert new["transaction.version"] == 0


def test_the_features_that_are_on(wire: WireClient) -> None:
    response = wire.send(ApiVersionsRequest(**NAMED), 4)
    finalized = {
        feature.name: (feature.min_version_level, feature.max_version_level)
        for feature in response.finalized_features
    }
    # Transactions of version 2, the new group protocol, and all that clients ask of metadata.
    assert finalized["transaction.version"] == (2, 2)
    assert finalized["group.version"] == (1, 1)
    assert finalized["metadata.version"] == (30, 30)
    assert response.finalized_features_epoch >= 0
    assert not response.zk_migration_ready


def test_features_are_told_from_version_3_on(wire: WireClient) -> None:
    response = wire.send(ApiVersionsRequest(**NAMED), 2)
    assert (list(response.supported_features), list(response.finalized_features)) == ([], [])


def test_a_software_version_that_is_no_version_is_refused(wire: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="")
    assert wire.send(request, 3).error_code == ErrorCode.INVALID_REQUEST
