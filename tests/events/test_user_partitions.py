"""The same partitions as those that the clients of Kafka choose."""

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from stream_dp.config.events_section import KeyEncoding, Partitioner
from stream_dp.events.user_partitions import fnv1a, murmur2, partition_rule

OF_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""UtilsTest.testMurmur2 of Apache Kafka."""

OF_LIBRDKAFKA = {
    b"kafka": (0xD067CF64, 0x0D33C4E1),
    b"giberish123456789": (0x8F552B0C, 0x77A58295),
    b"1234": (0x9FC97B14, 0x23BDD03),
    b"234": (0xE7C009CA, 0x2DEA3CD2),
    b"34": (0x873930DA, 0x740FA83E),
    b"4": (0x5A4B5CA1, 0x310CA263),
    b"": (0x106E08D9, 0x7EE3623B),
}
"""Its unit tests of murmur2 and of FNV-1a without a sign."""


def test_hashes_are_those_of_the_vectors_that_the_clients_publish() -> None:
    assert {key: murmur2(key) for key in OF_JAVA} == {key: value % 2**32 for key, value in OF_JAVA.items()}
    assert {key: murmur2(key) for key in OF_LIBRDKAFKA} == {
        key: both[0] for key, both in OF_LIBRDKAFKA.items()
    }
    for key, (_, expected) in OF_LIBRDKAFKA.items():
        assert min(fnv1a(key), 2**32 - fnv1a(key)) == expected


@given(st.binary(max_size=40))
def test_murmur2_is_that_of_both_clients_in_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) % 2**32 == murmur2_of_aiokafka(key) % 2**32


def test_crc32_is_the_common_one() -> None:
    assert partition_rule("crc32", 2**32)("123456789") == 0xCBF43926


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32", "fnv1a"])
def test_every_partition_is_used_and_no_other_one(partitioner: Partitioner) -> None:
    rule = partition_rule(partitioner, 7)
    assert {rule(f"user {number}") for number in range(500)} == set(range(7))


@pytest.mark.parametrize(("encoding", "largest"), [("int32", 2**31 - 1), ("int64", 2**63 - 1)])
def test_numbers_are_keys_as_java_writes_them(encoding: KeyEncoding, largest: int) -> None:
    partitions = 2**31
    rule = partition_rule("murmur2", partitions, encoding)
    size = 4 if encoding == "int32" else 8
    for number in (0, 1, -1, 77, largest, -largest - 1):
        assert rule(str(number)) == murmur2(number.to_bytes(size, "big", signed=True)) % partitions
    for wrong in (
        str(largest + 1),
        str(-largest - 2),
        "07",
        "+7",
        " 7",
        "7_0",
        "٧",
        "-0",
        "c7",
        "",
        "9" * 5000,
    ):
        assert rule(wrong) is None


def test_text_is_utf_8() -> None:
    assert partition_rule("murmur2", 7)("\ud800") is None
    assert partition_rule("murmur2", 2**31)("é🍵") == murmur2("é🍵".encode()) % 2**31
