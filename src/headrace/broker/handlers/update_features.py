"""UpdateFeatures (57), v0-v2: changes levels of features, all that are named or none.

Refused (95, INVALID_UPDATE_VERSION): a feature or level that this broker does not have, a lower level without asking
for a downgrade, another level of a feature that cannot change here. v2 answers for the request as a whole, earlier
ones for each feature.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import FIXED
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)
UPGRADE = 1
AS_A_WHOLE_SINCE = 2


def handle(core: "BrokerCore", request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    refused = [
        UpdatableFeatureResult(
            feature=update.feature, error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=reason
        )
        for update in request.feature_updates
        if (reason := _refusal(core, update, call)) is not None
    ]
    if refused and call.api_version >= AS_A_WHOLE_SINCE:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, refused[0].error_message)
    if refused:
        return UpdateFeaturesResponse(error_message=None, results=refused)
    if not request.validate_only:
        levels = {update.feature: update.max_version_level for update in request.feature_updates}
        core.features.finalize(levels)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message=None)
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _refusal(core: "BrokerCore", update: FeatureUpdateKey, call: Call) -> str | None:
    level = update.max_version_level
    text = f"Invalid update version {level} for feature {update.feature}. "
    feature = core.features.by_name.get(update.feature)
    if feature is None:
        return f"{text}This broker does not have this feature."
    if not feature.supports(level):
        return f"{text}This broker supports versions {feature.lowest} to {feature.highest}."
    if level < feature.level and not _is_downgrade(update, call):
        return (
            f"{text}Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade."
        )
    if level != feature.level and update.feature in FIXED:
        return f"{text}Headrace always runs this feature at version {feature.level}."
    return None


def _is_downgrade(update: FeatureUpdateKey, call: Call) -> bool:
    return update.allow_downgrade if call.api_version == 0 else update.upgrade_type > UPGRADE
