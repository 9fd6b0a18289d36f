"""The process that writes barriers stands beside every worker that needs them, so it starts fast and stays small."""

import subprocess
import sys

LOADED = "import sys, stream_dp.barriers.__main__; print(*sys.modules)"


def test_it_loads_nothing_that_only_noise_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "kafka" in loaded
    assert not loaded & {"faust", "pyarrow", "redis", "scipy"}
