"""What the documents show works: commands exist, code runs, settings load, figures come out again, links lead on."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from stream_dp import __version__
from stream_dp.cli import app
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.counters.binary import BinaryMechanism, chain
from stream_dp.counters.calibration import coupling_delta
from stream_dp.counters.protocol import EpochParameters
from stream_dp.dev.servers import embedded
from stream_dp.privacy.keyed_noise import MOST_CELLS
from tests.docs.commands import NoSuchCommandLine, commands, parse_line
from tests.docs.shown import BLOCK, ROOT, await_topic, blocks, run_line, running, running_line
from tests.system.waiting import GIVE_UP_SECONDS

README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def shown_command_lines(text: str) -> list[str]:
    """Every `stream-dp ...` in shell blocks and in running text."""
    in_blocks = [line for block in blocks(text, "sh") for line in block.splitlines()]
    in_text = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    return [line for line in in_blocks + in_text if re.match(r"(\.venv/bin/)?stream-dp(?![\w-])", line)]


LINES = [(page.name, line) for page in PAGES for line in shown_command_lines(page.read_text())]
PYTHON = [(page.name, block) for page in PAGES for block in blocks(page.read_text(), "python")]


def test_two_commands_do_all_the_setting_up() -> None:
    [first, *_] = blocks(README, "sh")
    assert [shlex.split(line, comments=True) for line in first.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert README.index("```sh") < README.index("## What it guarantees")


def test_every_make_target_shown_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test", "test-kafka", "lint", "bench"} <= shown
    assert shown <= targets


@pytest.mark.parametrize(("page", "line"), LINES)
def test_every_command_line_shown_exists(page: str, line: str) -> None:
    assert parse_line(line).startswith("stream-dp")


def test_the_readme_shows_what_a_stream_needs() -> None:
    shown = {parse_line(line).split()[1] for page, line in LINES if page == "README.md"}
    assert {"demo", "worker", "tail", "calibrate", "dev", "check", "budget", "verify", "rebuild"} <= shown
    assert shown <= commands().keys()


def test_a_line_that_does_not_exist_would_be_noticed() -> None:
    text = "```sh\nstream-dp worker --colour red\n```\nor `stream-dp wroker`"
    lines = shown_command_lines(text)
    assert lines == ["stream-dp worker --colour red", "stream-dp wroker"]
    for line in lines:
        with pytest.raises(NoSuchCommandLine):
            parse_line(line)


@pytest.mark.parametrize(("page", "block"), PYTHON)
def test_python_compiles(page: str, block: str) -> None:
    compile(block, page, "exec")


def test_settings_load(tmp_path: Path) -> None:
    [block] = blocks(README, "toml")
    file = tmp_path / "stream.toml"
    file.write_text(block)
    told, shown = msgspec.to_builtins(load_settings(file, {})), tomllib.loads(block)
    section = shown.pop("events")
    assert {name: told[name] for name in shown} == shown
    assert {name: told["events"][name] for name in section} == section


def test_what_the_better_counter_needs_is_what_calibrate_says() -> None:
    names = ["--epsilon", "1", "--delta", "1e-6", "--horizon", "65535", "--items-per-event", "4", "--json"]
    result = CliRunner().invoke(app, ["calibrate", *names])
    assert result.exit_code == 0, result.output
    seen = {name: told["seen_mostly"] for name, told in json.loads(result.stdout)["mechanisms"].items()}
    assert f"if it has {seen['blt']} of them at the horizon" in README
    assert f"the Binary Mechanism of the literature needs {seen['binary']} at the same guarantee" in README
    example = (ROOT / "stream.example.toml").read_text()
    assert f'# mechanism = "blt" # needs a count of {seen["blt"]} at the defaults below' in example
    assert f"and {seen['blt every-round']} with discover =" in example
    assert f'"binary", {seen["binary"]}, with twice the noise' in example


def test_the_remarks_on_the_settings_are_what_calibrate_says() -> None:
    def sd(*options: str) -> float:
        given = {"--epsilon": "1", "--delta": "1e-6", "--horizon": "65535", "--items-per-event": "4"}
        given |= dict(zip(options[::2], options[1::2], strict=True))
        words = [word for pair in given.items() for word in pair]
        result = CliRunner().invoke(app, ["calibrate", "--mechanism", "binary", "--json", *words])
        assert result.exit_code == 0, result.output
        return float(json.loads(result.stdout)["sd"]["mean"])

    base = sd()
    assert 1.8 < base / sd("--epsilon", "2") < 2
    assert round(base / sd("--horizon", "1023"), 1) == 1.6
    assert base / sd("--items-per-event", "1") == pytest.approx(2, rel=0.01)


def test_the_page_on_releases_knows_which_noise_two_rounds_share() -> None:
    [snippet, _] = blocks((ROOT / "docs" / "releases.md").read_text(), "python")
    shown: dict[str, Any] = {}
    exec(snippet, shown)
    mechanism = BinaryMechanism.of(EpochParameters(63, 1, 1e-6), 100.0)
    for first, second in ((6, 7), (7, 8), (12, 12), (63, 32)):
        common = {"mechanism": mechanism.name}
        releases = [common | {"round": number, "sd": mechanism.sd(number)} for number in (first, second)]
        alone = set(chain(first)) ^ set(chain(second))
        assert shown["sd_of_difference"](*releases) == pytest.approx(mechanism.sd(1) * len(alone) ** 0.5)
        with pytest.raises(ValueError, match="only the mechanism binary"):
            shown["sd_of_difference"](releases[0], releases[1] | {"mechanism": "blt"})


def test_the_charges_for_imperfect_noise_are_as_small_as_the_guarantee_page_says() -> None:
    page = (ROOT / "docs" / "guarantee.md").read_text()
    assert "add up to less than a millionth of delta" in page
    default = Settings(stream="shop", mechanism="binary")
    assert (
        coupling_delta(default.horizon, default.items_per_event) + MOST_CELLS**2 / 2**128 * default.delta / 2
        < 1e-6 * default.delta
    )


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_place_of_the_machine_they_were_written_on(page: Path) -> None:
    assert not re.search(r"/(home|root|wor[k])/|\bTO[D]O\b|\bFIX[M]E\b|—", page.read_text())


def test_the_changelog_has_what_is_unreleased_on_top_and_then_this_version() -> None:
    first, *versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == "Unreleased"
    assert versions[:1] in ([], [__version__]), "none has been released before the first"


def test_produce_connect_work_and_subscribe_as_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's own commands and snippets, one after the other, with the addresses of this machine."""
    [settings] = blocks(README, "toml")
    produce, subscribe = blocks(README, "python")
    [_, snapshots] = blocks((ROOT / "docs" / "releases.md").read_text(), "python")
    monkeypatch.chdir(tmp_path)
    with embedded(tmp_path / "servers") as servers:
        for name, snippet in (("produce", produce), ("subscribe", subscribe), ("snapshots", snapshots)):
            assert "localhost:9092" in snippet
            Path(f"{name}.py").write_text(snippet.replace("localhost:9092", servers.kafka))
        subprocess.run([sys.executable, "produce.py"], check=True, timeout=GIVE_UP_SECONDS)
        first, *_, budget, check = (  # the lines between are for other formats
            shlex.split(line, comments=True)[1:]
            for block in blocks(README, "sh")
            for line in block.splitlines()
            if line.startswith(("stream-dp connect", "stream-dp budget set --source", "stream-dp check"))
        )
        places = ["--kafka", servers.kafka, "--redis", servers.redis_url]
        for words in ([*first, *places], budget, check):
            run_line(shlex.join(["stream-dp", *words]))
        here = settings.replace("redis://localhost:6379/0", servers.redis_url)
        assert Path("stream.toml").read_text() == here.replace("localhost:9092", servers.kafka) + "\n"
        with running_line("stream-dp worker --log-level error", tmp_path) as worker:
            await_topic(servers.kafka, "shop.releases", worker)
            for name, shown in (("subscribe", "'tea': "), ("snapshots", "'tea': ")):
                with running([f"{name}.py"], tmp_path, stdout=subprocess.PIPE) as subscriber:
                    assert subscriber.stdout is not None
                    assert any(shown in line for line in subscriber.stdout)
