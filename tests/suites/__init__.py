"""Other projects' test suites against our broker: `make suites` runs them, and writes docs/reference/suites.md.

Nothing of theirs is kept here. Their tests come from package registries, unmodified; `apache.py`, `programs.py`,
`franz_go.py` and `python_suites.py` start the broker for them and read their results. `cannot_apply.toml` names the
tests that cannot pass on any single broker outside their own process, with a reason each. Every other failure is a bug
of ours.
"""
