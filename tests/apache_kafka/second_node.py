"""A second node of a cluster of Apache Kafka: while it is down, its partitions have no leader, and all others do."""

from pathlib import Path
from string import Template

from kafka import KafkaAdminClient

from tests.apache_kafka.server import Broker

NODE = 2

_JOINS = Template("""
process.roles=broker
node.id=$node
controller.quorum.voters=1@127.0.0.1:$controller_port
listeners=CLIENTS://127.0.0.1:${port}
advertised.listeners=CLIENTS://127.0.0.1:${port}
""")


def second_node(first: Broker, folder: Path) -> Broker:
    """One that keeps records for the cluster of `first`, which controls it; not started."""
    more = _JOINS.safe_substitute(node=NODE, controller_port=first.controller_port)
    return Broker(folder, more.replace("${port}", "$port"))


def is_there(first: Broker) -> bool:
    """Whether the cluster counts on the second node."""
    with KafkaAdminClient(bootstrap_servers=first.address) as admin:
        nodes = admin.describe_cluster()["brokers"]
    return any(node["broker_id"] == NODE and not node["is_fenced"] for node in nodes)


def add_partition(first: Broker, topic: str, count: int) -> None:
    """Give the topic partition number `count` - 1, which the second node alone has."""
    with KafkaAdminClient(bootstrap_servers=first.address) as admin:
        admin.create_partitions({topic: {"count": count, "assignments": [[NODE]]}})


def has_leader(first: Broker, topic: str, partition: int) -> bool:
    """Whether anybody leads it."""
    with KafkaAdminClient(bootstrap_servers=first.address) as admin:
        [told] = admin.describe_topics([topic])
    return any(each["partition_index"] == partition and each["leader_id"] >= 0 for each in told["partitions"])
