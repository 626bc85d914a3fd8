"""Values into typed columns; what cannot be read is rejected with the reason instead of failing the query.

orders = parse_json(stream, "id bigint, amount double")      # adds columns: parsed, outcome, reason
process(orders, handle).start()                              # handle sees readable rows only
"""

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from headrace.spark.errors import OptionError

CORRUPT = "_corrupt_record"


def parse_json(
    df: DataFrame, schema: StructType | str, *, column: str = "value", into: str = "parsed"
) -> DataFrame:
    """Adds the JSON object in `column` as a struct, and `outcome` and `reason` for rows that cannot be read.

    A value that is missing, is no JSON object (or more than one), or does not fit the schema's types gets the outcome
    "reject". Fields that the object lacks are null.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if CORRUPT in fields.names:
        raise OptionError(
            f"the schema has a field {CORRUPT!r}, which is needed here; give yours another name."
        )
    wanted = StructType([*fields.fields]).add(CORRUPT, StringType())
    text = F.col(column).cast("string")
    strict = {"mode": "PERMISSIVE", "allowSingleQuotes": "false"}
    found = F.from_json(text, wanted, {**strict, "columnNameOfCorruptRecord": CORRUPT})
    # Spark reads the first object and passes over what follows. In an array, what follows is an error or an element.
    elements = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", strict)
    alone = F.coalesce(F.size(elements) == 1, F.lit(False))
    return _judged(
        df.withColumn(into, found),
        is_unreadable=F.col(into).isNull() | F.col(f"{into}.{CORRUPT}").isNotNull() | ~alone,
        column=column,
        what="a JSON object of the schema",
    ).withColumn(into, F.col(into).dropFields(CORRUPT))


def parse_avro(df: DataFrame, schema: str, *, column: str = "value", into: str = "parsed") -> DataFrame:
    """The same for Avro's binary encoding with a schema in JSON. Needs Spark's avro package on the class path."""
    from pyspark.sql.avro.functions import from_avro

    try:
        # Of what cannot be read Spark makes a record of nulls, which a good one may be too. In a record around it,
        # whose encoding is that of its one field, the field is null then.
        around = {"type": "record", "name": "Around", "fields": [{"name": "it", "type": json.loads(schema)}]}
        found = from_avro(column, json.dumps(around), {"mode": "PERMISSIVE"})
        parsed = df.withColumn(into, found["it"])
        _ = parsed.schema  # without the package, Spark finds out only now
    except Exception as error:
        raise OptionError(
            "Avro needs Spark's package, spark.jars.packages=org.apache.spark:spark-avro_2.13:<your Spark version>, "
            f"and a schema in JSON that it can read: {error}"
        ) from error
    return _judged(parsed, is_unreadable=F.col(into).isNull(), column=column, what="Avro of the schema")


def _judged(df: DataFrame, *, is_unreadable: Column, column: str, what: str) -> DataFrame:
    reason = F.when(F.col(column).isNull(), f"no {column}").otherwise(f"{column} is not {what}")
    return df.withColumn("outcome", F.when(is_unreadable, "reject").otherwise("accept")).withColumn(
        "reason", F.when(is_unreadable, reason)
    )
