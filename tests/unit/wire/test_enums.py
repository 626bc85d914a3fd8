"""Enumerations that stand in two places on purpose agree."""

from headrace.client.delivery import AcknowledgeType
from headrace.share.changes import AckType


def test_what_users_can_answer_has_the_engines_numbers() -> None:
    assert {each.name: each.value for each in AcknowledgeType} == {
        each.name: each.value for each in AckType if each is not AckType.GAP
    }
