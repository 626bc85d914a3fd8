"""JSON schemas of the Strimzi 1.x resources (kafka.strimzi.io/v1) in deploy/: the fields that we use, and no others.

Written after the custom resource definitions of Strimzi's main branch of August 2026 (1.3.0-SNAPSHOT), install files
040, 043 and 045. A field that is not here is refused, so a typing error cannot pass; a field that is new to us has
to be looked up there and added.
"""

from typing import Any

Schema = dict[str, Any]


def object_of(properties: Schema, *, required: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_CONFIG = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_VOLUME = object_of(
    {
        "id": {"type": "integer", "minimum": 0},
        "type": {"enum": ["persistent-claim", "ephemeral"]},
        "size": _TEXT,
        "kraftMetadata": {"enum": ["shared"]},
        "deleteClaim": {"type": "boolean"},
        "class": _TEXT,
    },
    required=("id", "type"),
)
_LISTENER = object_of(
    {
        "name": {"type": "string", "pattern": "^[a-z0-9]{1,11}$"},
        "port": {"type": "integer", "minimum": 9092},
        "type": {
            "enum": ["internal", "route", "tlsroute", "loadbalancer", "nodeport", "ingress", "cluster-ip"]
        },
        "tls": {"type": "boolean"},
    },
    required=("name", "port", "type", "tls"),
)
_SPECS: dict[str, Schema] = {
    "KafkaNodePool": object_of(
        {
            "replicas": {"type": "integer", "minimum": 0},
            "roles": {"type": "array", "items": {"enum": ["controller", "broker"]}, "minItems": 1},
            "storage": object_of(
                {"type": {"enum": ["jbod"]}, "volumes": {"type": "array", "items": _VOLUME, "minItems": 1}},
                required=("type", "volumes"),
            ),
        },
        required=("replicas", "roles", "storage"),
    ),
    "Kafka": object_of(
        {
            "kafka": object_of(
                {
                    "version": _TEXT,
                    "metadataVersion": _TEXT,
                    "listeners": {"type": "array", "items": _LISTENER, "minItems": 1},
                    "config": _CONFIG,
                },
                required=("listeners",),
            ),
            "entityOperator": object_of({"topicOperator": object_of({}), "userOperator": object_of({})}),
        },
        required=("kafka",),
    ),
    "KafkaTopic": object_of(
        {
            "topicName": _TEXT,
            "partitions": {"type": "integer", "minimum": 1},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 32767},
            "config": _CONFIG,
        }
    ),
}
_METADATA = object_of(
    {"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}, "labels": {"type": "object"}},
    required=("name",),
)


def schema_of(kind: str) -> Schema:
    """KeyError for a kind that we do not use."""
    return object_of(
        {
            "apiVersion": {"const": "kafka.strimzi.io/v1"},
            "kind": {"const": kind},
            "metadata": _METADATA,
            "spec": _SPECS[kind],
        },
        required=("apiVersion", "kind", "metadata", "spec"),
    )
