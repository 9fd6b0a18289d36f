"""Tests of stream_dp/events/mapping."""
