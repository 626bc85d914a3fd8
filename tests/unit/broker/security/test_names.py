"""Names of certificates as Java writes them, and the rules that make users of them."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from headrace.broker.security.names import distinguished_name, map_name, parse_mapping_rules
from tests.unit.broker.security.certificates import self_signed

DUKE = "CN=Duke, OU=ServiceUsers, O=Org, C=US"


def test_a_name_is_written_last_part_first_with_escapes(tmp_path: Path) -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'Acme, "Inc" + Söhne'),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, " #1 "),
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
            x509.NameAttribute(NameOID.COMMON_NAME, "Duke"),
        ]
    )
    _, der = self_signed(name, tmp_path)
    assert distinguished_name(der) == 'CN=Duke,DC=example,OU=\\ \\#1\\ ,O=Acme\\, \\"Inc\\" \\+ Söhne,C=US'


def test_an_attribute_that_java_has_no_keyword_for_is_written_by_number(tmp_path: Path) -> None:
    parts = [
        x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.EMAIL_ADDRESS, "d@e.f")]),
        x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, "Duke")]),
    ]
    _, der = self_signed(x509.Name(parts), tmp_path)
    assert distinguished_name(der) == "CN=Duke,1.2.840.113549.1.9.1=#1605644065" + b".f".hex()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a,CN=admin", "CN=a\\,CN\\=admin"),
        ("a=b#c", "CN=a\\=b\\#c"),
        ("  a  ", "CN=\\ \\ a\\ \\ "),
        ("   ", "CN=\\ \\ \\ "),
        ("\r a", "CN=\\\r\\ a"),
        ("a \n", "CN=a \n"),
        ("a\0b", "CN=a\\00b"),
        ("a\\b", "CN=a\\\\b"),
    ],
)
def test_a_value_cannot_look_like_another_part_of_the_name(value: str, written: str, tmp_path: Path) -> None:
    """Expected is what Java's X500Principal.getName() gives."""
    _, der = self_signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)]), tmp_path)
    assert distinguished_name(der) == written


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (_ASN1Type.BMPString, "ab", "CN=\\00a\\00b"),
        (_ASN1Type.UniversalString, "ab", "CN=#1c080000006100000062"),
        (_ASN1Type.IA5String, "a@b", "CN=a@b"),
    ],
)
def test_java_reads_every_text_as_utf_8(kind: _ASN1Type, value: str, written: str, tmp_path: Path) -> None:
    _, der = self_signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value, kind)]), tmp_path)
    assert distinguished_name(der) == written


@pytest.mark.parametrize(
    ("rules", "mapped"),
    [
        ("DEFAULT", DUKE),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/L", "duke"),
        ("RULE:^CN=(.*?), OU=(.*?), O=(.*?), C=.*$/$1@$2/U, DEFAULT", "DUKE@SERVICEUSERS"),
        ("RULE:^CN=other$/x/, RULE:.*CN=(\\w+),.*/$1/", "Duke"),
        ("RULE:^CN=(.*?), OU=\\/x$/$1/, DEFAULT", DUKE),
        ("RULE:^CN=nobody$/x/", None),
        ("RULE:^CN=(\\w+),.*$/$2 $10/", "$2 Duke0"),
        ("RULE:^CN=(\\w+),.*$/\\$1 a\\/b\\n/", "$1 a/bn"),
        ("RULE:^CN=(?<user>\\w+),.*$/${user}/", "Duke"),
        ("RULE:^CN=(\\w+),.*$/ $1 /", " Duke "),
        ("RULE:^CN=(Duke),.*|(x)$/[$1$2]/", "[Duke]"),
        ("RULE:.*/everybody/", "everybodyeverybody"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: str, mapped: str | None) -> None:
    assert map_name(parse_mapping_rules(rules), DUKE) == mapped


def test_word_characters_are_ascii_as_in_java() -> None:
    rules = parse_mapping_rules("RULE:^CN=(\\w+),.*$/$1/")
    assert map_name(rules, "CN=Élodie,O=Org") is None


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:(a/b/", "DEFAULT/L", "RULE:a/b/X", "RULE:a/${b}/"]
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_mapping_rules(rules)
