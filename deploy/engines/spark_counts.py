"""Counts the events of a stream in Spark, for intake = "counts": docs/operations/counts.md.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
    spark_counts.py KAFKA STREAM ITEMS_PER_EVENT CHECKPOINT
"""

import json
import sys
from hashlib import blake2b

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

KAFKA, STREAM, BOUND, CHECKPOINT = sys.argv[1:]
EVENTS, BARRIERS, COUNTS = f"{STREAM}.events", f"{STREAM}.barriers", f"{STREAM}.counts"
SERVERS = {"kafka.bootstrap.servers": KAFKA}
SOURCE = {**SERVERS, "kafka.isolation.level": "read_committed"}
BARRIER = "n long, previous string, tag string, offsets map<string, long>"
# 150 labels of 1,024 characters each fit into a record.
QUERY = f"""
WITH labels AS (
    SELECT /*+ BROADCAST(rounds) */ partition, n, tag, explode(slice(array_distinct(items), 1, {int(BOUND)})) AS label
    FROM {{events}} JOIN {{rounds}} AS rounds USING (partition)
    WHERE offset >= first AND offset < stop AND forall(items, item -> length(item) BETWEEN 1 AND 1024)
), counts AS (SELECT partition, n, tag, label, count(*) AS count FROM labels GROUP BY ALL
), placed AS (
    SELECT *, int(ceil(row_number() OVER (PARTITION BY partition, n, tag ORDER BY label) / 150)) AS part,
           int(ceil(count(*) OVER (PARTITION BY partition, n, tag) / 150)) AS parts
    FROM counts
), records AS (
    SELECT partition, n, tag, part, parts, collect_list(struct(label, count)) AS counts FROM placed GROUP BY ALL)
SELECT partition, to_json(struct(partition, n, tag, first, coalesce(part, 1) AS part, coalesce(parts, 1) AS parts,
                                 {int(BOUND)} AS bound, coalesce(counts, array()) AS counts)) AS value
FROM {{rounds}} LEFT JOIN records USING (partition, n, tag)"""

spark = SparkSession.builder.appName(f"counts of {STREAM}").getOrCreate()
ends = {"0" * 32: dict[str, int]()}  # by digest of a barrier; this one stands for the beginning of the chain


def parsed(records: DataFrame, schema: str) -> DataFrame:
    text = f.try_validate_utf8(f.col("value").cast("string"))
    value = f.from_json(text, schema, {"allowSingleQuotes": "false"})
    return records.select("partition", "offset", "value", value.alias("parsed")).select("*", "parsed.*")


def remember(records: DataFrame, which: str = "tag IS NOT NULL") -> list[Row]:
    barriers = parsed(records, BARRIER).where(which).orderBy("offset").collect()
    ends.update({blake2b(each.value, digest_size=16).hexdigest(): each.offsets for each in barriers})
    return barriers


def count(records: DataFrame, _: int) -> None:
    """Count the rounds that these barriers close: each from where the one ends that it names as `previous`."""
    barriers = remember(records)
    if unknown := {str(each.n - 1) for each in barriers if each.previous not in ends}:  # after a start
        remember(
            spark.read.format("kafka").options(**SOURCE, subscribe=BARRIERS).load(),
            f"n IN ({','.join(unknown)})",
        )
    follow = [(each, ends[each.previous]) for each in barriers if each.previous in ends]
    closed = [(b.n, b.tag, int(p), old.get(p, 0), end) for b, old in follow for p, end in b.offsets.items()]
    if closed:
        first, stop = dict[int, int](), dict[int, int]()
        for _, _, place, begin, end in closed:
            first[place], stop[place] = min(begin, first.get(place, begin)), max(end, stop.get(place, end))
        span = {"assign": [*first], "startingOffsets": first, "endingOffsets": stop}
        asked = {name: json.dumps({EVENTS: told}) for name, told in span.items()}
        events = parsed(spark.read.format("kafka").options(**SOURCE, **asked).load(), "items array<string>")
        rounds = spark.createDataFrame(closed, "n long, tag string, partition int, first long, stop long")
        counts = spark.sql(QUERY, events=events, rounds=rounds)
        counts.write.format("kafka").options(**SERVERS, topic=COUNTS).save()
    for old in [*ends][1:-1_000]:
        del ends[old]


stream = spark.readStream.format("kafka").options(**SOURCE, subscribe=BARRIERS, startingOffsets="earliest")
query = stream.option("maxOffsetsPerTrigger", 1_000).load().writeStream.foreachBatch(count)
query.option("checkpointLocation", CHECKPOINT).start().awaitTermination()
