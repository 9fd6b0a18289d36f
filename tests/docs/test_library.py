"""What docs/library.md shows is run as it stands."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(example, "library.md", "exec"), names)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "clicks.key",
        "customers.key",
        "orders.key",
        "shop.key",
        "visits.ledger",
    ]
    told = capsys.readouterr().out
    assert "'tea'" in told
    assert "count" in told
    assert "factor of e^1" in told
