"""Servers for trying out and for tests: an embedded Kafka-protocol broker and a real Valkey or Redis server.

Nothing here is meant for production: one node, no replication, no authentication, loopback only.
"""
