"""A run that is to fail where a test passed only at its second try, also when its tests run in several processes.

pytest-rerunfailures 16.7 looks for such tests in the process that runs them, which is none of those that decide.
"""

import pytest

PASSED_AT_SECOND_TRY = 7
"""The exit status that pytest-rerunfailures gives such a run."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run by its option `--fail-on-flaky`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("fail_on_flaky") and reporter is not None and reporter.stats.get("rerun"):
        session.exitstatus = session.exitstatus or PASSED_AT_SECOND_TRY
