"""Features: what ApiVersions says of share groups, and that they can be turned off."""

import pytest

from headrace.broker.features import features, require_share_groups
from headrace.broker.settings import Settings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse


def told(admin, version=4):
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = admin.ask(request, ApiVersionsResponse, version)
    supported = {key.name: (key.min_version, key.max_version) for key in response.supported_features}
    return supported, {key.name: key.max_version_level for key in response.finalized_features}


def test_share_groups_are_on_as_in_kafka_4_3(admin):
    supported, finalized = told(admin)
    assert supported["share.version"] == (0, 1)
    assert finalized["share.version"] == 1


def test_dead_letter_queues_are_share_version_2(admin):
    admin.restart(headrace_share_version=2)
    supported, finalized = told(admin)
    assert supported["share.version"] == (0, 2)
    assert finalized["share.version"] == 2


def test_features_whose_lowest_version_is_0_are_kept_from_older_clients(admin):
    supported, finalized = told(admin, version=3)
    assert supported.keys() == {"metadata.version"}
    assert "share.version" in finalized


def test_share_groups_can_be_turned_off(admin):
    admin.restart(headrace_share_version=0)
    supported, finalized = told(admin)
    assert supported["share.version"] == (0, 1)
    assert "share.version" not in finalized
    with pytest.raises(KafkaError) as caught:
        require_share_groups(admin.settings)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_every_feature_that_is_on_is_one_that_is_supported():
    for level in (0, 1, 2):
        for feature in features(Settings({"headrace.share.version": level})).values():
            assert feature.lowest <= feature.level <= feature.highest
