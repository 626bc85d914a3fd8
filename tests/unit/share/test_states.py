"""The law of record states: what the table allows, and that the picture is the table's."""

from itertools import product

from headrace.share.states import FINAL, TRANSITIONS, UNWRITTEN, Cause, RecordState

S, C = RecordState, Cause


def test_the_numbers_are_kafkas() -> None:
    assert [(state.name, int(state)) for state in S] == [
        ("AVAILABLE", 0),
        ("ACQUIRED", 1),
        ("ACKNOWLEDGED", 2),
        ("ARCHIVING", 3),
        ("ARCHIVED", 4),
    ]


def test_final_states_have_no_way_out() -> None:
    assert {S.ACKNOWLEDGED, S.ARCHIVED} == FINAL
    assert not [pair for pair in TRANSITIONS if pair[0] in FINAL]


def test_a_record_is_acquired_only_from_available_and_acknowledged_only_from_acquired() -> None:
    into = {
        after: {before for (before, cause), after_ in TRANSITIONS.items() if after_ is after} for after in S
    }
    assert into[S.ACQUIRED] == {S.AVAILABLE, S.ACQUIRED}  # renewing keeps it
    assert into[S.ACKNOWLEDGED] == {S.ACQUIRED}
    assert into[S.ARCHIVING] == {S.ACQUIRED}
    assert {cause for (before, cause), after in TRANSITIONS.items() if before is after} == {C.READ, C.RENEW}


def test_every_cause_is_in_the_table_and_most_pairs_are_not() -> None:
    assert {cause for _, cause in TRANSITIONS} == set(C)
    assert len(TRANSITIONS) == 17 < len(list(product(S, C)))


def test_nothing_acquired_is_ever_written() -> None:
    written = {after for (_, cause), after in TRANSITIONS.items() if cause not in UNWRITTEN}
    assert written == set(S) - {S.ACQUIRED}
