"""An Apache Kafka that lets a user do only what was granted: without a right, nothing is allowed.

The user comes in over SASL/PLAIN at `address`.  Whoever comes in at `administrator` may do everything.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from tests.apache_kafka.server import Broker, free_ports

USER, PASSWORD = "orders-histogram", "of-the-test"

_LISTENERS = Template("""
listeners=CLIENTS://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller_port},USERS://127.0.0.1:$users_port
advertised.listeners=CLIENTS://127.0.0.1:${port},USERS://127.0.0.1:$users_port
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT
listener.name.users.sasl.enabled.mechanisms=PLAIN
listener.name.users.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_$user="$password";
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
""")


@dataclass(frozen=True)
class AuthorizedKafka:
    """Where everybody may do everything, and where USER may do what was granted."""

    administrator: str
    address: str

    def grant(self, rights: Iterable[tuple[str, str]]) -> None:
        """Give USER rights, each as (topic, operation), such as ("orders", "READ").

        Returns when the broker knows them.
        """
        given = [self._acl(*right) for right in rights]
        with KafkaAdminClient(bootstrap_servers=self.administrator) as admin:
            assert admin.create_acls(given)["failed"] == []
            while any(not admin.describe_acls(self._filter(each))[0] for each in given):
                time.sleep(0.02)

    def withdraw(self, topic: str, right: str) -> None:
        """Take a right away again."""
        with KafkaAdminClient(bootstrap_servers=self.administrator) as admin:
            admin.delete_acls([self._filter(self._acl(topic, right))])

    @staticmethod
    def _filter(acl: ACL) -> ACLFilter:
        return ACLFilter(acl.principal, None, acl.operation, ACLPermissionType.ANY, acl.resource_pattern)

    @staticmethod
    def _acl(topic: str, right: str) -> ACL:
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        return ACL(f"User:{USER}", "*", ACLOperation[right], ACLPermissionType.ALLOW, pattern)


@contextmanager
def authorized_kafka(folder: Path) -> Iterator[AuthorizedKafka]:
    """Run a new Apache Kafka node whose data are below `folder`."""
    users_port, _ = free_ports()
    values = {"users_port": users_port, "user": USER, "password": PASSWORD}
    with Broker(folder, _LISTENERS.safe_substitute(values)) as broker:
        yield AuthorizedKafka(broker.address, f"127.0.0.1:{users_port}")
