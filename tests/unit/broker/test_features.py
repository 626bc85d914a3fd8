"""Features: what ApiVersions says of them, and which levels UpdateFeatures gives them."""

import pytest

from headrace.broker.features import NEW
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.update_features_response import UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE = 1, 2


def told(admin, version=4):
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = admin.ask(request, ApiVersionsResponse, version)
    supported = {key.name: (key.min_version, key.max_version) for key in response.supported_features}
    return supported, {key.name: key.max_version_level for key in response.finalized_features}


def update(admin, *levels, upgrade_type=UPGRADE, version=2, **fields):
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level in levels
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, **fields)
    return admin.ask(request, UpdateFeaturesResponse, version)


def test_share_groups_and_dead_letter_queues_are_on_as_in_kafka_4_4(admin):
    supported, finalized = told(admin)
    assert supported["share.version"] == (0, 2)
    assert finalized["share.version"] == 2


def test_features_whose_lowest_version_is_0_are_kept_from_older_clients(admin):
    supported, finalized = told(admin, version=3)
    assert supported.keys() == {"metadata.version"}
    assert "share.version" in finalized


def test_a_level_can_be_lowered_and_survives_a_restart(admin):
    update(admin, ("share.version", 1), upgrade_type=SAFE_DOWNGRADE)
    assert told(admin)[1]["share.version"] == 1
    assert not admin.features.has_dead_letter_queues
    admin.restart()
    assert told(admin)[1]["share.version"] == 1
    update(admin, ("share.version", 2))
    assert admin.features.has_dead_letter_queues


def test_share_groups_can_be_turned_off(admin):
    update(admin, ("share.version", 0), upgrade_type=SAFE_DOWNGRADE)
    assert "share.version" not in told(admin)[1]
    with pytest.raises(KafkaError) as caught:
        admin.features.require_share_groups()
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("nonsense", 1, "does not have this feature"),
        ("share.version", 3, "supports versions 0 to 2"),
        ("share.version", -1, "supports versions 0 to 2"),
        ("share.version", 1, "Can't downgrade"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(admin, name, level, reason):
    response = update(admin, ("share.version", 2), (name, level))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert reason in response.error_message
    assert told(admin)[1]["share.version"] == 2


def test_older_requests_are_refused_feature_by_feature(admin):
    response = update(admin, ("share.version", 2), ("nonsense", 1), version=1)
    (refused,) = response.results
    assert (refused.feature, refused.error_code) == ("nonsense", ErrorCode.INVALID_UPDATE_VERSION)


def test_a_feature_that_headrace_always_runs_at_one_level_keeps_it(admin):
    update(admin, ("group.version", 1))
    response = update(admin, ("group.version", 0), upgrade_type=SAFE_DOWNGRADE)
    assert "always runs this feature at version 1" in response.error_message


def test_a_validation_changes_nothing(admin):
    update(admin, ("share.version", 1), upgrade_type=SAFE_DOWNGRADE, validate_only=True)
    assert told(admin)[1]["share.version"] == 2


def test_every_feature_that_is_on_is_one_that_is_supported():
    assert all(feature.supports(feature.level) for feature in NEW.values())
