"""The API's description in OpenAPI 3.1, printed from the table of operations and the types it names."""

from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

import msgspec

from headrace.version import __version__
from headrace.web import model
from headrace.web.api import OPERATIONS, PREFIX, Operation

REF = "#/components/schemas/{name}"


def describe() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    types = {operation.answers for operation in OPERATIONS} | {model.Problem}
    types |= {operation.wants for operation in OPERATIONS if operation.method == "POST"}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=REF)
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace dashboard",
            "version": __version__,
            "description": "What a Kafka cluster's share groups do. Times are milliseconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.method.lower() + operation.path.replace("/", "_").replace("-", "_"),
        "responses": {
            "200": _content("Done.", operation.answers),
            "default": _content("What went wrong, in a sentence.", model.Problem),
        },
    }
    if operation.method == "GET":
        hints = get_type_hints(operation.wants, include_extras=True)
        described["parameters"] = [_parameter(each, hints[each.name]) for each in fields(operation.wants)]
    else:
        described["parameters"] = [
            {
                "name": "X-CSRF-Token",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "From /api/v1/session; not needed with a bearer token.",
            }
        ]
        described["requestBody"] = {"required": True, **_body(operation.wants)}
    return described


def _parameter(field: Field[Any], hint: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([hint], ref_template=REF)
    if field.default is not MISSING and field.default is not None:
        schema = {**schema, "default": field.default}
    return {"name": field.name, "in": "query", "required": field.default is MISSING, "schema": schema}


def _content(description: str, kind: type) -> dict[str, Any]:
    return {"description": description, **_body(kind)}


def _body(kind: type) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": REF.format(name=kind.__name__)}}}}
