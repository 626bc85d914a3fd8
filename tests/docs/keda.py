"""JSON schemas of the KEDA resources (keda.sh/v1alpha1) in deploy/: the fields that we use, and no others.

Written after KEDA's custom resource definitions and the documentation of its scaler `metrics-api`. A field that is not
here is refused, so a typing error cannot pass.
"""

from tests.docs.strimzi import Schema, object_of

_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
_TRIGGER = object_of(
    {
        "type": {"enum": ["metrics-api"]},
        "metadata": object_of(
            {
                "url": {"type": "string", "pattern": "^https?://"},
                "valueLocation": _TEXT,
                "targetValue": {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?$"},
                "activationTargetValue": {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?$"},
                "authMode": {"enum": ["bearer"]},
            },
            required=("url", "valueLocation", "targetValue"),
        ),
        "authenticationRef": object_of({"name": _TEXT}, required=("name",)),
    },
    required=("type", "metadata"),
)
_SECRET = object_of({"parameter": _TEXT, "name": _TEXT, "key": _TEXT}, required=("parameter", "name", "key"))
_SPECS: dict[str, Schema] = {
    "ScaledObject": object_of(
        {
            "scaleTargetRef": object_of({"name": _TEXT}, required=("name",)),
            "minReplicaCount": _COUNT,
            "maxReplicaCount": _COUNT,
            "pollingInterval": _COUNT,
            "cooldownPeriod": _COUNT,
            "fallback": object_of(
                {"failureThreshold": _COUNT, "replicas": _COUNT}, required=("failureThreshold", "replicas")
            ),
            "triggers": {"type": "array", "items": _TRIGGER, "minItems": 1},
        },
        required=("scaleTargetRef", "triggers"),
    ),
    "TriggerAuthentication": object_of(
        {"secretTargetRef": {"type": "array", "items": _SECRET, "minItems": 1}}
    ),
}


def keda_schema_of(kind: str) -> Schema:
    return object_of(
        {
            "apiVersion": {"const": "keda.sh/v1alpha1"},
            "kind": {"const": kind},
            "metadata": object_of({"name": _TEXT}, required=("name",)),
            "spec": _SPECS[kind],
        },
        required=("apiVersion", "kind", "metadata", "spec"),
    )
