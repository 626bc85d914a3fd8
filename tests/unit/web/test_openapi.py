"""The description is complete: every operation, its parameters, bodies and answers, and no dangling reference."""

import json

from headrace.web.api import OPERATIONS, PREFIX
from headrace.web.openapi import describe


def test_every_operation_is_described_and_every_reference_leads_somewhere() -> None:
    described = json.loads(json.dumps(describe()))
    schemas = described["components"]["schemas"]
    for operation in OPERATIONS:
        entry = described["paths"][PREFIX + operation.path][operation.method.lower()]
        assert entry["summary"]
        assert ("requestBody" in entry) == (operation.method == "POST")
    text = json.dumps(described)
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= set(schemas)


def test_parameters_say_what_is_needed_and_what_is_possible() -> None:
    entry = describe()["paths"]["/api/v1/records"]["get"]
    parameters = {each["name"]: each for each in entry["parameters"]}
    assert parameters["topic"]["required"] is True
    assert parameters["limit"]["required"] is False
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}


def test_operation_ids_are_unique() -> None:
    ids = [entry["operationId"] for path in describe()["paths"].values() for entry in path.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS)
