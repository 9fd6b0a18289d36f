"""Servers that the tests of a file have to themselves, whatever `--kafka` says."""

from collections.abc import Iterator

import pytest

from stream_dp.dev.servers import Servers
from tests.apache_spark.own_servers import own_servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with own_servers(tmp_path_factory.mktemp("servers")) as found:
        yield found
