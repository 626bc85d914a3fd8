"""Share groups on Spark: `spark.readStream.format("kafka-share")`."""
