"""Kafka's config providers: secrets that a `server.properties` takes from the environment or from files.

`config.providers=env` with `config.providers.env.class=...EnvVarConfigProvider` makes `${env:NAME}` stand for a
variable, FileConfigProvider's `${file:PATH:KEY}` stands for a value of a properties file, and DirectoryConfigProvider's
`${directory:PATH:NAME}` for what is in a file. What cannot be found is refused: left as it is, a reference would become
a password that everybody can guess. Settings that clients alter on the running broker are not resolved: they must not
be a way to read the broker's files.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.base.properties import parse_properties

PROVIDERS = "config.providers"
FILE_BYTES_MAX = 1 << 20
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*)\}")
Lookup = Callable[[str, str, Mapping[str, str]], str]
"""The value of a path and a key, with the parameters of the provider; ValueError with the reason if there is none."""


def resolve_references(given: Mapping[str, str]) -> dict[str, str]:
    """The settings with what their references stand for, without the providers' own; raises ValueError."""
    names = [name.strip() for name in given.get(PROVIDERS, "").split(",") if name.strip()]
    own = {name: _parameters(given, f"{PROVIDERS}.{name}.") for name in names}
    lookups = {name: _lookup(name, parameters) for name, parameters in own.items()}
    resolved = {}
    for setting, text in given.items():
        if setting == PROVIDERS or setting.startswith(f"{PROVIDERS}."):
            continue

        def replacement(found: re.Match[str], setting: str = setting) -> str:
            provider, path, key = found.groups()
            if provider not in lookups:
                return found[0]
            try:
                return lookups[provider](path or "", key, own[provider])
            except ValueError as error:
                raise ValueError(f"{setting}: {found[0]} cannot be resolved: {error}") from None

        resolved[setting] = _REFERENCE.sub(replacement, text)
    return resolved


def _parameters(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}


def _lookup(name: str, parameters: Mapping[str, str]) -> Lookup:
    text = parameters.get("class", "")
    lookup = _LOOKUPS.get(text.rpartition(".")[2])
    if lookup is None:
        raise ValueError(
            f"{PROVIDERS}.{name}.class={text} is not supported; choose from {', '.join(_LOOKUPS)}"
            if text
            else f"{PROVIDERS}.{name}.class is missing; set it to the class of the provider"
        )
    return lookup


def _variable(path: str, key: str, parameters: Mapping[str, str]) -> str:
    allowed = parameters.get("param.allowlist.pattern", ".*")
    try:
        is_allowed = re.fullmatch(allowed, key) is not None
    except re.error as error:
        raise ValueError(f"param.allowlist.pattern={allowed} is not a pattern: {error}") from None
    if path or not is_allowed or key not in os.environ:
        raise ValueError(f"there is no such variable, or param.allowlist.pattern={allowed} does not allow it")
    return os.environ[key]


def _value_in_file(path: str, key: str, parameters: Mapping[str, str]) -> str:
    values = parse_properties(_read(Path(path), parameters))
    if key not in values:
        raise ValueError(f"the file has no {key}")
    return values[key]


def _file_in_directory(path: str, key: str, parameters: Mapping[str, str]) -> str:
    if not path or not key or key != Path(key).name:
        raise ValueError("expected a directory and the name of a file in it")
    return _read(Path(path) / key, parameters)


def _read(path: Path, parameters: Mapping[str, str]) -> str:
    allowed = [
        Path(each.strip()) for each in parameters.get("param.allowed.paths", "").split(",") if each.strip()
    ]
    real = path.resolve()
    if allowed and not any(real.is_relative_to(each.resolve()) for each in allowed):
        raise ValueError("param.allowed.paths does not allow it")
    try:
        with real.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


_LOOKUPS: dict[str, Lookup] = {
    "EnvVarConfigProvider": _variable,
    "FileConfigProvider": _value_in_file,
    "DirectoryConfigProvider": _file_in_directory,
}
