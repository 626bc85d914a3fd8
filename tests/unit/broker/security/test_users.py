"""SCRAM users: kept over restarts, added once, and never shown with their secrets."""

import re
from pathlib import Path

import pytest

from headrace.broker.security.scram import credential_of_password, parse_credential
from headrace.broker.security.users import NewScramUser, Users, both_mechanisms, parse_new_user
from headrace.log.metadata import MetadataStore
from headrace.wire.security import SaslMechanism

SHA_256, SHA_512 = SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512


def test_users_are_kept() -> None:
    store = MetadataStore()
    users = Users(store)
    users.add_missing(both_mechanisms({"alice": "secret"}))
    kept = Users(store)
    assert kept.names() == ["alice"]
    assert kept.credentials("alice") == users.credentials("alice")
    kept.set("alice", SHA_256, None)
    kept.set("alice", SHA_512, None)
    assert Users(store).names() == []


def test_a_password_that_was_altered_is_not_put_back_by_the_next_start() -> None:
    users = Users(MetadataStore())
    users.add_missing([NewScramUser(SHA_512, "alice", "first")])
    altered = credential_of_password(SHA_512, "altered")
    users.set("alice", SHA_512, altered)
    users.add_missing([NewScramUser(SHA_512, "alice", "first")])
    assert users.credentials("alice") == {SHA_512: altered}


def test_a_credential_survives_its_text_and_hides_in_a_log() -> None:
    credential = credential_of_password(SHA_256, "secret", salt=b"grains")
    assert parse_credential(credential.text()) == credential
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert "secret" not in repr(NewScramUser(SHA_256, "alice", "secret"))


def test_the_decoy_of_an_unknown_user_is_the_same_each_time_where_a_client_can_see_it() -> None:
    users = Users(MetadataStore())
    users.add_missing([NewScramUser(SHA_512, "alice", "secret", 8192)])
    first, second = users.decoy("nobody", SHA_512), users.decoy("nobody", SHA_512)
    assert (first.salt, first.iterations) == (second.salt, 8192)
    assert first.salt != users.decoy("someone", SHA_512).salt


def test_neither_salt_nor_iterations_of_a_decoy_tell_it_from_a_user() -> None:
    users = Users(MetadataStore())
    users.add_missing([NewScramUser(SHA_512, str(count), "secret", count) for count in (4096, 8192)])
    decoys = [users.decoy(f"nobody {number}", SHA_512) for number in range(60)]
    real = users.credentials("8192")[SHA_512]
    for one in (*decoys, real):
        assert re.fullmatch(rb"[0-9a-z]{20,26}", one.salt), "as Kafka's tools make them"
    assert {one.iterations for one in decoys} == {4096, 8192}


def test_the_iterations_of_a_decoy_follow_those_of_the_users() -> None:
    users = Users(MetadataStore())
    assert users.decoy("nobody", SHA_512).iterations == 4096
    users.add_missing([NewScramUser(SHA_512, "alice", "secret", 8192)])
    assert users.decoy("nobody", SHA_512).iterations == 8192
    users.set("alice", SHA_512, None)
    assert users.decoy("nobody", SHA_512).iterations == 4096


def test_the_salt_of_a_decoy_is_the_same_after_a_restart(tmp_path: Path) -> None:
    salts = []
    for _ in range(2):
        store = MetadataStore(tmp_path / "metadata.sqlite")
        salts.append(Users(store).decoy("nobody", SHA_512).salt)
        store.close()
    assert salts[0] == salts[1]
    assert salts[0] != Users(MetadataStore()).decoy("nobody", SHA_512).salt


def test_a_new_user_is_read_as_kafka_storage_reads_it() -> None:
    assert parse_new_user("SCRAM-SHA-512=[name=admin,password=a=b c]") == NewScramUser(
        SHA_512, "admin", "a=b c"
    )
    assert parse_new_user('SCRAM-SHA-256=[name="x",iterations=8192,password="p"]') == NewScramUser(
        SHA_256, "x", "p", 8192
    )


@pytest.mark.parametrize(
    "text",
    [
        "admin:geheim",
        "SCRAM-SHA-1=[name=a,password=geheim]",
        "SCRAM-SHA-512=[name=a]",
        "SCRAM-SHA-512=[password=geheim]",
        "SCRAM-SHA-512=[name=a,password=geheim,iterations=5]",
    ],
)
def test_what_is_no_user_is_refused_without_showing_the_password(text: str) -> None:
    with pytest.raises(ValueError, match="--add-scram") as refused:
        parse_new_user(text)
    assert "geheim" not in str(refused.value)
