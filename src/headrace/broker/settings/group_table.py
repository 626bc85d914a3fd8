"""Settings of a single group, kept under its id even before it exists. Share groups' settings join here."""

from headrace.broker.settings.setting import Scope, Setting, Synonym, Type


def _group(name: str, default: int, minimum: int, doc: str) -> Setting:
    kind, _, rest = name.partition(".")
    return Setting(
        name=name,
        scope=Scope.GROUP,
        type=Type.INT,
        default=default,
        minimum=minimum,
        doc=doc,
        is_dynamic=True,
        synonyms=(Synonym(f"group.{name}"),),
        bounds=(f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"),
    )


GROUP_SETTINGS: tuple[Setting, ...] = (
    _group(
        "consumer.session.timeout.ms",
        45_000,
        1,
        "A member that is silent for so long is out of the group.",
    ),
    _group(
        "consumer.heartbeat.interval.ms",
        5000,
        1,
        "How often members are told to send heartbeats.",
    ),
    _group(
        "consumer.assignment.interval.ms",
        1000,
        0,
        "Shortest time between two assignments of the group.",
    ),
)
