"""Every option has an environment variable: `headrace serve --log-level` is HEADRACE_SERVE_LOG_LEVEL.

What is typed wins. Options that name their own variable (HEADRACE_BOOTSTRAP_SERVER, HEADRACE_WEB_TOKEN) keep it. An
option that can be repeated takes several values, separated by blanks. The help shows only the variables that an option
names itself: the rule is easier to remember than a column of names.
"""

from typing import Any

PREFIX = "HEADRACE"
LEFT_OUT = frozenset({"help", "version", "install_completion", "show_completion", "help_settings"})


def name_variables(command: Any, prefix: str = PREFIX) -> None:
    """Gives each option of the command, and of the commands below it, its variable."""
    for option in getattr(command, "params", ()):
        if option.param_type_name == "option" and option.envvar is None and option.name not in LEFT_OUT:
            option.envvar = f"{prefix}_{_word(option)}"
            option.show_envvar = False
    for name, below in getattr(command, "commands", {}).items():
        name_variables(below, f"{prefix}_{name.upper().replace('-', '_')}")


def _word(option: Any) -> str:
    """Of its long name: `--log-level` is LOG_LEVEL."""
    long = max(option.opts, key=len)
    return str(long).lstrip("-").upper().replace("-", "_")
