"""What the Spark source raises. Each message names the value and the cure."""


class SourceError(Exception):
    """The source cannot go on; Spark ends the query with this text."""


class OptionError(SourceError, ValueError):
    """An option is missing, unknown, out of range, or contradicts another one."""


class CheckpointError(SourceError):
    """The checkpoint does not fit this query: another source, group or version wrote it, or Spark runs ahead of it."""


class DataLossError(SourceError):
    """Records of a logged micro-batch are gone from Kafka's log, so it cannot be replayed."""


class OutcomeError(SourceError):
    """An outcome cannot be recorded: the micro-batch does not hold the record, or the mode has no such outcome."""


class ColumnError(SourceError, TypeError):
    """A DataFrame lacks a column that the sink needs, or the column has another type or a null."""
