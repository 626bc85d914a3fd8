"""The lists of settings that cannot be used do not overlap with those that can, nor with each other."""

from dataclasses import fields

from headrace.base.tables import rows
from headrace.client.settings import ShareSettings
from headrace.client.settings_refused import NO_EFFECT, REFUSED, REFUSED_FOR_SHARE_GROUPS


def test_a_name_is_in_one_list_only() -> None:
    usable = {each.name.replace("_", ".") for each in fields(ShareSettings)}
    usable |= {alias for row in rows(ShareSettings).values() for alias in row.aliases}
    lists = [usable, set(NO_EFFECT), set(REFUSED), set(REFUSED_FOR_SHARE_GROUPS)]
    assert sum(map(len, lists)) == len(set().union(*lists))


def test_every_refusal_says_what_to_do_instead() -> None:
    instead = ("leave it out", "set", "use", "give", "says how", "convert", "wrap", "create", "password of")
    for name, reason in {**REFUSED, **REFUSED_FOR_SHARE_GROUPS}.items():
        assert any(word in reason for word in instead), name
