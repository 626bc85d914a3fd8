"""Dead letters: KIP-1191's headers first, ours after them, the record's own before them."""

from dataclasses import replace
from types import SimpleNamespace

from headrace.client.delivery import Delivery, Grant
from headrace.worker.dead_letters import DeadLetterBuilder, describe
from headrace.worker.held_job import HeldJob
from headrace.worker.outcomes import Reject, outcome_of
from headrace.worker.rules import GiveUpCause

FAILED = outcome_of(ValueError("no such mailbox"))


def build(headers=(("trace", b"1"),), cause=GiveUpCause.EXHAUSTED, outcome=FAILED):
    place = SimpleNamespace(topic="emails", partition=2, delivery_count=3)
    delivery = Delivery(b"k", b"v", 41, 1_700_000_000_000, headers, 0, Grant(place, None))
    held = HeldJob.of(delivery, "mail.send")
    held.tries = 3
    return DeadLetterBuilder("emails.dead", "mailers", "host-1").build(held, cause, outcome)


def test_key_value_and_headers_of_the_record_are_copied():
    letter = build()

    assert (letter.key, letter.value, letter.headers[0]) == (b"k", b"v", ("trace", b"1"))


def test_the_first_facts_are_those_of_kip_1191_in_its_order():
    assert build().headers[1:7] == [
        ("__dlq.errors.topic", b"emails"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"41"),
        ("__dlq.errors.group", b"mailers"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", b"Retries exhausted: ValueError: no such mailbox"),
    ]


def test_our_facts_say_what_a_broker_cannot_know():
    facts = dict(build().headers)

    assert facts["headrace.dlq.cause"] == b"exhausted"
    assert facts["headrace.dlq.attempts"] == b"5"
    assert facts["headrace.dlq.task"] == b"mail.send"
    assert facts["headrace.dlq.worker"] == b"host-1"
    assert facts["headrace.dlq.timestamp"] == b"1700000000000"
    assert facts["headrace.dlq.exception"] == b"ValueError: no such mailbox"
    assert facts["headrace.dlq.traceback.hash"] == FAILED.traceback_hash.encode()


def test_the_traceback_is_kept_and_its_end_if_it_is_long():
    try:
        raise ValueError("no such mailbox")
    except ValueError as error:
        short = outcome_of(error)
    kept = dict(build(outcome=short).headers)["headrace.dlq.traceback"].decode()
    assert kept.startswith("Traceback (most recent call last):")
    assert kept.endswith("ValueError: no such mailbox")
    long = replace(short, trace="\n".join(f"line {number} é" for number in range(2_000)))
    kept = dict(build(outcome=long).headers)["headrace.dlq.traceback"].decode()
    assert (kept[:2], kept.splitlines()[-1]) == ("…\n", "line 1999 é")
    assert 3_900 < len(kept.encode()) <= 4_110


def test_a_record_that_died_before_carries_only_its_last_death():
    first = build()
    second = build(headers=first.headers, cause=GiveUpCause.REJECTED, outcome=outcome_of(Reject("closed")))

    assert [name for name, _ in second.headers].count("__dlq.errors.topic") == 1
    assert dict(second.headers)["headrace.dlq.cause"] == b"rejected"
    assert second.headers[0] == ("trace", b"1")


def test_a_record_nobody_ran_has_no_exception():
    facts = dict(build(cause=GiveUpCause.LAST_DELIVERY, outcome=None).headers)

    assert "headrace.dlq.exception" not in facts
    assert b"Delivery limit reached" in facts["__dlq.errors.message"]


def test_every_cause_has_a_sentence():
    assert len({describe(cause, FAILED) for cause in GiveUpCause}) == len(GiveUpCause)
    assert describe(GiveUpCause.REJECTED, outcome_of(Reject("why not"))) == "Rejected by the task: why not"
