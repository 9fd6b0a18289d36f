"""Jobs on files from the command line without any server: what they are charged to, and what they refuse."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.jobs import spark
from stream_dp.jobs.result import JobResult, decode_result
from stream_dp.store.any_ledger import AnyLedger
from tests.local import killed_job
from tests.system.worker_process import PROCESSES, Kill

ORDERS = "orders.csv"


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, of a user who has no ledger yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    chosen = random.Random(1)
    rows = [(f"c{number % 400}", f"sku{int(chosen.paretovariate(0.8))}") for number in range(4_000)]
    file = tmp_path / ORDERS
    file.write_text("customer,sku\n" + "".join(f"{customer},{sku}\n" for customer, sku in rows))
    return file


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def asked(file: Path, *words: str, user: str | None = "customer", job: str = "top-k") -> Result:
    people = [] if user is None else ["--user", user]
    return command(job, "--file", str(file), "--item", "sku", *people, "--epsilon", "1", "--json", *words)


def answered(file: Path, *words: str, **more: Any) -> JobResult:
    ran = asked(file, *words, **more)
    assert ran.exit_code == 0, ran.output
    return decode_result(ran.stdout.encode())


def refusal(ran: Result) -> str:
    assert ran.exit_code == 2, ran.output
    return " ".join(ran.stderr.split())


def shown(source: str = ORDERS) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(command("budget", "show", "--source", source, "--json").stdout)
    return told


def test_a_file_is_answered_and_charged_on_this_machine(orders: Path, tmp_path: Path) -> None:
    ran = asked(orders, "--id", "best")
    result = decode_result(ran.stdout.encode())
    assert "sku1" in result.labels[:3]  # which twice as many hold as the fourth
    assert (result.source, result.unit) == (ORDERS, "user")
    told = " ".join(ran.stderr.split())
    assert f"Charged to orders.csv in {tmp_path}/state/stream_dp/ledger.sqlite" in told
    assert "epsilon 2 at delta 1e-05 per user: room for 1 more like it" in told
    ledger = shown()
    [charge] = ledger["charges"]
    assert (charge["unit"], charge["exact"]) == ("user", [1.0, 1e-6])
    assert ledger["spent"]["epsilon"] == pytest.approx(1.0)
    again = asked(orders, "--id", "best")
    assert "it was not run again, and nothing is charged" in again.stderr
    assert again.stdout == ran.stdout
    assert "was used before with other parameters" in refusal(asked(orders, "--id", "best", "-k", "11"))
    assert len(shown()["charges"]) == 1


def test_the_budget_ends_and_can_be_raised(orders: Path) -> None:
    assert answered(orders).labels != []
    assert answered(orders, job="histogram").labels != []
    assert "does not fit the budget of 'orders.csv'" in refusal(asked(orders))
    assert "does not fit" in json.loads(asked(orders, "--dry-run").stdout)["forecast"]["why_not"]
    more = ["--source", ORDERS, "--epsilon", "3", "--delta", "1e-5"]
    assert "more is spent" in refusal(command("budget", "set", *more[:3], "0.5", *more[4:]))
    assert "counts per user" in refusal(command("budget", "set", *more, "--unit", "event"))
    assert command("budget", "set", *more).exit_code == 0
    answered(orders)
    assert [each["epsilon"] for each in shown()["journal"]["budgets"]] == [2.0, 3.0]


def test_a_budget_may_be_set_before_anything_is_asked(orders: Path) -> None:
    numbers = ["--source", ORDERS, "--epsilon", "1", "--delta", "1e-5"]
    assert "say whom the budget protects" in refusal(command("budget", "set", *numbers))
    assert command("budget", "set", *numbers, "--unit", "user", "--by", "the board").exit_code == 0
    assert "does not fit" in refusal(asked(orders, "--epsilon", "1.1"))
    answered(orders)
    told = command("budget", "show").stdout  # the only one there is
    assert "set by the board" in told


def test_it_has_to_be_said_whom_a_file_protects(orders: Path, tmp_path: Path) -> None:
    told = refusal(asked(orders, user=None))
    assert "name the column of people with --user" in told
    assert "or say --unit event" in told
    assert shown()["charges"] == []
    answered(orders, "--unit", "event", user=None)
    assert shown()["unit"] == "event"
    assert "each row is protected by itself and the column of users would not be read" in refusal(
        asked(orders)
    )
    assert "nobody has said" not in refusal(asked(orders, "--unit", "user"))
    answered(orders, user=None)  # it is known by now
    assert [each["unit"] for each in shown()["charges"]] == ["event", "event"]


def test_people_and_rows_are_not_protected_by_one_command(orders: Path) -> None:
    assert "each row is protected by itself and the column of users would not be read" in refusal(
        asked(orders, "--unit", "event")
    )
    assert shown()["charges"] == []


def test_a_copy_and_a_file_that_grew_spend_the_same_budget(orders: Path, tmp_path: Path) -> None:
    answered(orders)
    copy = tmp_path / "copy.csv"
    shutil.copy(orders, copy)
    assert answered(copy).source == ORDERS
    assert "does not fit" in refusal(asked(copy))
    assert "spends the budget of 'orders.csv', not of 'mine'" in refusal(asked(copy, "--source", "mine"))
    with orders.open("a") as file:
        file.write("c1,more\n")
    assert "does not fit the budget of 'orders.csv'" in refusal(asked(orders))
    assert answered(orders, "--source", "of.others").source == "of.others"
    assert "name a data source with --source: of.others, orders.csv" in refusal(command("budget", "show"))


def test_a_dry_run_and_a_look_make_nothing(orders: Path, tmp_path: Path) -> None:
    told = json.loads(asked(orders, "--dry-run").stdout)
    assert (told["source"], told["unit"], told["forecast"]["fits"]) == (ORDERS, "user", True)
    assert told["forecast"]["left"]["pure_epsilon"] == pytest.approx(1.0)
    assert told["forecast"]["more"] == 1
    words = [
        "top-k",
        "--file",
        str(orders),
        "--item",
        "sku",
        "--user",
        "customer",
        "--epsilon",
        "1",
        "--dry-run",
    ]
    assert "there is room for 1 more like it, on the same events." in " ".join(command(*words).stdout.split())
    assert command("budget", "show", "--source", ORDERS).exit_code == 0
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "where",
    [
        ["--kafka", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"],
        ["--redis", "redis://127.0.0.1:1/0"],
        [],
    ],
)
def test_where_servers_are_named_these_are_asked(
    orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: list[str]
) -> None:
    if not where:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "stream.toml").write_text('stream = "shop"\nredis = "redis://127.0.0.1:1/0"\n')
    assert "does not answer at" in refusal(asked(orders, *where))
    assert not (tmp_path / "state").exists()


def test_a_budget_of_marks_is_drawn_from(orders: Path) -> None:
    marks = [
        "--mechanism",
        "pay-what-you-get",
        "--budget",
        "anna",
        "--marks",
        "6",
        "--queries",
        "9",
        "-k",
        "2",
    ]
    for _ in range(3):
        assert len(answered(orders, *marks).labels) <= 2
    [left] = shown()["pay_what_you_get"]
    assert left["queries_left"] == 6
    assert len(shown()["charges"]) == 1


def test_a_damaged_ledger_answers_nothing(orders: Path, tmp_path: Path) -> None:
    answered(orders, "--id", "best")
    file = tmp_path / "state" / "stream_dp" / "ledger.sqlite"
    file.write_bytes(file.read_bytes()[:5_000])
    for ran in (asked(orders), asked(orders, "--id", "best"), command("budget", "show", "--source", ORDERS)):
        assert "ledger.sqlite is damaged, so nobody knows what was spent" in refusal(ran)


def test_two_at_once_spend_no_more_than_there_is(orders: Path, tmp_path: Path) -> None:
    """They begin the ledger at once, too."""
    words = ["top-k", "--file", str(orders), "--item", "sku", "--user", "customer", "--mechanism", "laplace"]
    given = (words, tmp_path / "state", tmp_path / "released", None)
    running = [PROCESSES.Process(target=killed_job._run, args=given) for _ in range(4)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert sorted(each.exitcode or 0 for each in running) == [0, 0, 2, 2]
    assert len(shown()["charges"]) == 2
    assert len((tmp_path / "released").read_text().splitlines()) == 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", killed_job.STEPS)
def test_a_job_that_is_killed_at_any_step_goes_on(
    orders: Path, tmp_path: Path, step: str, after: bool
) -> None:
    words = ["histogram", "--file", str(orders), "--item", "sku", "--user", "customer", "--id", "j", "--json"]
    place = tmp_path / "state", tmp_path / "released"
    assert killed_job.run(words, *place, Kill(step, after=after)) == -9
    released = (tmp_path / "released").read_text().splitlines() if (tmp_path / "released").exists() else []
    assert not released or len(shown()["charges"]) == 1
    result = answered(orders, "--id", "j", job="histogram")
    assert [json.loads(each) for each in released] in ([], [[result.labels, result.counts]])
    assert len(shown()["charges"]) == 1
    assert shown()["spent"]["epsilon"] == pytest.approx(1.0)


def test_how_to_go_on_is_told_only_of_what_was_charged(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "If this is interrupted, run it again with --id"
    assert hint not in asked(orders, "--epsilon", "3").stderr
    assert hint not in asked(orders, "--dry-run").stderr
    charge_ = AnyLedger.charge

    def interrupted(*given: Any, **named: Any) -> None:
        charge_(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(AnyLedger, "charge", interrupted)
        assert hint in asked(orders).stderr
    [charge] = shown()["charges"]
    assert answered(orders, "--id", charge["id"].rpartition("/")[2]).labels != []
    assert len(shown()["charges"]) == 1


def test_a_dry_run_tells_what_is_public_and_starts_no_engine(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(engine: spark.Spark) -> None:
        raise AssertionError

    monkeypatch.setattr(spark.Spark, "start", start)
    words = ["--engine", "spark", "--dry-run", "--mechanism", "gumbel"]
    few, many = (json.loads(asked(orders, *words, "-k", k).stdout)["needed"] for k in ("1", "10"))
    assert 20 < few < many < 200  # how many users a label needs, of 400
    told = " ".join(
        command("top-k", "--file", str(orders), "--item", "sku", "--user", "customer", *words).stdout.split()
    )
    assert f"A label is found in 95% of cases if {many:,.0f} users more hold it" in told


def test_an_epsilon_that_finds_nothing_is_refused(orders: Path) -> None:
    assert "epsilon must be at least 0.001" in refusal(
        asked(orders, "-k", "10", "--epsilon", "1e-9", "--dry-run")
    )


def test_an_empty_file_is_refused_with_the_option(orders: Path) -> None:
    orders.write_text("")
    assert "name the column of items with --item" in refusal(asked(orders))


def test_whole_doubles_are_whole_numbers(tmp_path: Path, orders: Path) -> None:
    columns = {"customer": [float(number) for number in range(1_000)], "sku": [5.0] * 1_000}
    pq.write_table(pa.table(columns), tmp_path / "numbers.parquet")
    assert answered(tmp_path / "numbers.parquet", job="histogram").labels == ["5"]


def test_ten_small_questions_fit_the_usual_budget(orders: Path) -> None:
    for _ in range(10):
        assert asked(orders, "--epsilon", "0.2").exit_code == 0
    assert "for users nothing is left" in refusal(asked(orders, "--epsilon", "0.2"))
    assert shown()["spent"]["epsilon"] == pytest.approx(2.0)
