"""Who runs a stream gets its budget and statement on the page, and nobody else does."""

from typing import cast

from starlette.testclient import TestClient

from stream_dp.dashboard.app import Dashboard, NoStatement
from stream_dp.dashboard.reader import Reader
from tests.dashboard.test_app import Topic


def test_those_who_run_a_stream_get_its_statement_and_nobody_else_does() -> None:
    asked = 0

    def statement() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise NoStatement("Redis does not answer")
        return f"<!doctype html><title>Statement {asked}</title><style>p {{ margin: 0 }}</style>"

    with TestClient(Dashboard(cast(Reader, Topic())).app()) as client:
        assert client.get("/statement").status_code == 404
        assert "data-operators" not in client.get("/").text
    with TestClient(Dashboard(cast(Reader, Topic()), statement).app(("anna", "secret"))) as client:
        assert (client.get("/statement").status_code, asked) == (401, 0)
        client.auth = ("anna", "secret")
        assert '<html lang="en" data-operators="">' in client.get("/").text
        found = client.get("/statement")
        assert "Statement 1" in found.text
        assert found.headers["cache-control"] == "no-store"
        policy = found.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
        assert "script" not in policy
        assert "unsafe-inline" not in client.get("/").headers["content-security-policy"]
        failed = client.get("/statement")
        assert (failed.status_code, "Redis does not answer" in failed.text) == (503, True)
        assert "Statement 3" in client.get("/statement").text
