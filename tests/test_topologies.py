"""What Faust does around a service, and what it is kept from."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.apache_kafka.server import free_ports
from topologies import roles


@pytest.mark.parametrize("name", roles.ROLES)
def test_each_role_is_one_app_however_often_faust_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second worker would find the port taken by the first."""
    settings = {
        "STREAM": f"of-{name}",
        "METRICS_ADDRESS": f"127.0.0.1:{free_ports()[0]}",
    }
    for setting, value in settings.items():
        monkeypatch.setenv(f"STREAM_DP_{setting}", value)
    app = getattr(roles, name)
    assert app.conf.id == f"of-{name}.{name.replace('_', '-')}"
    assert getattr(roles, name) is app


REFUSED = """
import sys
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.operations.open_metrics import PublicFacts
from typer import Exit

class Worker:
    settings = Settings(stream="s")

    async def run(self):
        raise SettingsError("no key")

    def stop(self):
        pass

try:
    run_worker(Worker(), "role", Log(for_machines=sys.argv[1] == "json"), PublicFacts("s"))
except SettingsError:
    sys.exit(2)
except Exit as ended:
    sys.exit(ended.exit_code)
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_worker_that_gives_up_ends_with_a_status_of_its_own_whoever_reads_its_log(form: str) -> None:
    """A supervisor that starts again what failed must see that it did."""
    found = subprocess.run([sys.executable, "-c", REFUSED, form], capture_output=True, text=True, check=False)
    assert (found.returncode, (found.stdout + found.stderr).count("no key")) == (2, 1), found.stderr


async def test_an_app_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everybody may write, its name would be known before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("STREAM_DP_STREAM", "shop")
    await roles.running_histogram.on_first_start()
    assert not list(tmp_path.iterdir())
