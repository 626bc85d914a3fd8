"""Settings of access control. Names and rules are those of Kafka's StandardAuthorizer."""

from headrace.base.settings import ConfigType, Value
from headrace.broker.settings.setting import Scope, ScopedSetting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _known_authorizer(value: Value) -> str | None:
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return f"this broker has only {STANDARD_AUTHORIZER}; use it, or leave the setting empty for no access control"


def _principals(value: Value) -> str | None:
    for principal in split_principals(str(value)):
        kind, separator, name = principal.partition(":")
        if not separator or not kind or not name:
            return f"{principal!r} is not a principal; write it as User:NAME, several with semicolons between"
    return None


def split_principals(text: str) -> list[str]:
    """`super.users` has semicolons, because the names in certificates have commas."""
    return [principal for part in text.split(";") if (principal := part.strip())]


ACCESS_SETTINGS = (
    ScopedSetting(
        name="authorizer.class.name", scope=Scope.BROKER, type=ConfigType.STRING, default="",
        doc="Turns access control lists on: from then on, every request needs a permission. Empty: everybody may "
        "do everything.",
        check=_known_authorizer, allowed_text=f"empty, or `{STANDARD_AUTHORIZER}`",
    ),
    ScopedSetting(
        name="super.users", scope=Scope.BROKER, type=ConfigType.STRING, default="",
        doc="Principals that may do everything, such as `User:admin;User:ops`, with semicolons between. Without one, "
        "nobody can create the first ACL.",
        check=_principals, allowed_text="principals with semicolons between",
    ),
    ScopedSetting(
        name="allow.everyone.if.no.acl.found", scope=Scope.BROKER, type=ConfigType.BOOLEAN, default=False,
        doc="Whether everybody may use a resource to which no ACL applies.",
    ),
)  # fmt: skip
