"""Topics as DataFrames, DataFrames as topics, and what topics hold."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import functions as f

from tidewheel.transport.events import codec

POSITION = "tidewheel.transit.v1.VehiclePosition"
CELL = "tidewheel.transit.v1.VehicleCell"


def reader(spark, log, *, stream=False, topics="a", of=POSITION, **options):
    read = (spark.readStream if stream else spark.read).format("tidewheel")
    read = read.option("log", log.address).option("topics", topics)
    if of:
        read = read.option("type", of)
    for name, value in options.items():
        read = read.option(name, value)
    return read.load()


def values(log, topic):
    return [
        value
        for partition in range(log.topic_info(topic).partitions)
        for batch in log.read(topic, partition, 0)
        for value in batch.records["value"].to_pylist()
    ]


def decoded(log, topic):
    return [codec.unpack(codec.decode(value)) for value in values(log, topic)]


def cells(frame):
    return frame.select("event_time", f.col("vehicle").cast("long").alias("cell"), "operator", "vehicle", "mode")


def write_stream(frame, log, folder, **options):
    writer = frame.writeStream.format("tidewheel").option("log", log.address)
    for name, value in {"topic": "out", "type": CELL, "checkpointLocation": str(folder), **options}.items():
        writer = writer.option(name, value)
    writer.trigger(availableNow=True).start().awaitTermination()


def order_type(package):
    """A message type that no installed package knows."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in enumerate(("article", "shelf"), start=1):
        field = message.field.add(name=name, number=number)
        field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))
