"""The `headrace` command. One file per subcommand: parse, call, render."""
