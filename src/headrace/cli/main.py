"""The `headrace` command: one file per subcommand, imported only when it is used."""

from headrace.cli.app import app


def main() -> None:
    app(prog_name="headrace")
