"""Values into typed columns; what cannot be read is rejected with the reason instead of failing the query.

orders = parse_json(stream, "id bigint, amount double")      # adds columns: parsed, outcome, reason
process(orders, handle).start()                              # handle sees readable rows only
"""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, FloatType, StringType, StructField, StructType

from headrace.spark.errors import OptionError

CORRUPT = "_corrupt_record"
JSON = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
SHOWN = 100
"""How much of a value that does not fit is shown."""


def parse_json(
    df: DataFrame,
    schema: StructType | str,
    *,
    column: str = "value",
    into: str = "parsed",
    strict: bool = False,
) -> DataFrame:
    """Adds the JSON object in `column` as a struct, and `outcome` and `reason` for rows that cannot be read.

    A value that is missing, is no JSON object, has anything before or after it, or does not fit the schema's types gets
    the outcome "reject", with the first field that does not fit in the reason. Fields that the object lacks are null.

    With `strict`, the object must have the fields of the schema, spelled the same, and no others; those that the
    schema declares NOT NULL must not be null. That counts for structs in it too, but not for those in arrays and maps.
    """
    fields = _fields(schema) if isinstance(schema, str) else schema
    if CORRUPT in fields.names:
        raise OptionError(
            f"the schema has a field {CORRUPT!r}, which is needed here; give yours another name."
        )
    wanted = StructType([*fields.fields]).add(CORRUPT, StringType())
    text = F.col(column).cast("string")
    found = F.from_json(text, wanted, {**JSON, "columnNameOfCorruptRecord": CORRUPT})
    raw = F.from_json(text, "map<string,string>", JSON)
    parsed = F.col(into)
    wrong = [_misfit(field, parsed[field.name], raw[field.name]) for field in fields]
    if strict:
        wrong += _differences(fields, parsed, text, "")
    reason = F.when(~_is_alone(text) | raw.isNull() | parsed.isNull(), f"{column} is not one JSON object")
    corrupt = F.when(parsed[CORRUPT].isNotNull(), f"{column} is not a JSON object of the schema")
    judged = _judged(df.withColumn(into, found), F.coalesce(reason, *wrong, corrupt), column)
    return judged.withColumn(into, parsed.dropFields(CORRUPT))


def _fields(ddl: str) -> StructType:
    """As Spark reads the text, also in a flow.

    There Spark refuses to, although it looks at nothing of the flow. It knows a flow by what its client tells with
    each request, and that is of the flow's thread.
    """
    try:
        return StructType.fromDDL(ddl)
    except AnalysisException as error:
        if not _is_in_flow(error):
            raise
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(StructType.fromDDL, ddl).result()


def _is_in_flow(error: AnalysisException) -> bool:
    """Whether Spark has looked at nothing, since the function that asks defines a flow of a declarative pipeline."""
    return bool(error.getCondition() == "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION")


def _is_alone(text: Column) -> Column:
    """Spark reads the first object and passes over what follows: so it gets one more element to find after it.

    Nobody can write the element into a value, since it is another one in each query.
    """
    last = uuid4().hex
    elements = F.from_json(F.concat(F.lit("["), text, F.lit(f',"{last}"]')), "array<string>", JSON)
    return F.coalesce((F.size(elements) == 2) & (elements[1] == last), F.lit(False))


def _misfit(field: StructField, value: Column, raw: Column) -> Column:
    """Why a field is not what the schema says: null, but not in the text, or too large for a floating-point number."""
    kind = field.dataType.simpleString()
    said = F.concat(F.lit(f"field {field.name} is not {kind}: "), F.substring(raw, 1, SHOWN))
    misfit = F.when(value.isNull() & raw.isNotNull(), said)
    if isinstance(field.dataType, FloatType | DoubleType):
        return misfit.when(F.abs(value) == float("inf"), f"field {field.name} is too large for {kind}")
    return misfit


def _differences(fields: StructType, value: Column, text: Column, path: str) -> list[Column]:
    """Fields that are missing, null or not in the schema, at this level and in the structs below."""
    found = F.json_object_keys(text)
    names = F.array(*(F.lit(field.name) for field in fields))
    more = F.array_except(found, names)
    wrong = [
        F.when(
            ~F.array_contains(found, field.name) & found.isNotNull(), f"field {path}{field.name} is missing"
        )
        for field in fields
    ]
    said = F.concat(F.lit(f"field {path}"), more[0], F.lit(" is not in the schema"))
    wrong.append(F.when(F.size(more) > 0, said))
    for field in fields:
        inner = value[field.name]
        if not field.nullable:
            wrong.append(F.when(value.isNotNull() & inner.isNull(), f"field {path}{field.name} is null"))
        if isinstance(field.dataType, StructType):
            quoted = field.name.replace("'", "\\'")
            below = F.get_json_object(text, f"$['{quoted}']")
            wrong += _differences(field.dataType, inner, below, f"{path}{field.name}.")
    return wrong


def parse_avro(df: DataFrame, schema: str, *, column: str = "value", into: str = "parsed") -> DataFrame:
    """The same for Avro's binary encoding with a schema in JSON. Needs Spark's avro package on the class path."""
    from pyspark.sql.avro.functions import from_avro

    try:
        # Of what cannot be read Spark makes a record of nulls, which a good one may be too. In a record around it,
        # whose encoding is that of its one field, the field is null then.
        around = {"type": "record", "name": "Around", "fields": [{"name": "it", "type": json.loads(schema)}]}
        found = from_avro(column, json.dumps(around), {"mode": "PERMISSIVE"})
        parsed = df.withColumn(into, found["it"])
        try:
            _ = parsed.schema  # without the package, Spark finds out only now
        except AnalysisException as error:
            if not _is_in_flow(error):
                raise
    except Exception as error:
        raise OptionError(
            "Avro needs Spark's package, spark.jars.packages=org.apache.spark:spark-avro_2.13:<your Spark version>, "
            f"and a schema in JSON that it can read: {error}"
        ) from error
    reason = F.when(F.col(into).isNull(), f"{column} is not Avro of the schema")
    return _judged(parsed, reason, column)


def _judged(df: DataFrame, reason: Column, column: str) -> DataFrame:
    """`reason` is why a row cannot be read, null where it can."""
    why = F.when(F.col(column).isNull(), f"no {column}").otherwise(reason)
    outcome = F.when(why.isNull(), "accept").otherwise("reject")
    return df.withColumn("outcome", outcome).withColumn("reason", why)
