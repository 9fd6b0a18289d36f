"""The file of ledgers: it never shows less spent than was spent, whatever happens to it."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import msgspec
import pytest

from stream_dp.errors import NotReady
from stream_dp.privacy.loss import pure
from stream_dp.store import any_ledger, ledger_file
from stream_dp.store.ledger_file import Content, FileOf, LedgerFile, LocalLedger
from stream_dp.store.ledger_records import BudgetExceeded, ChargeConflict, LedgerDamaged, LedgerRefused
from tests.store.charges import SOURCE, charge

BYTES_LOOKED_AT = 3_000


def opened(path: Path) -> LocalLedger:
    return LocalLedger(LedgerFile(path), SOURCE)


def filled(path: Path) -> Content:
    """A file with ledgers, a registered file and a job."""
    file = LedgerFile(path)
    for source in (SOURCE, "other"):
        ledger = LocalLedger(file, source)
        ledger.set_budget(1.0, 1e-6, "event")
        ledger.charge(charge())
        ledger.charge(charge("b"))
    file.append(lambda _: [msgspec.json.encode(FileOf(1, SOURCE, "ab" * 32, "orders.csv"))])
    file.write_once("job", "plan", bytes(64))
    content = file.read()
    file.close()
    return content


def as_told(content: Content) -> object:
    """What a file says, for comparisons."""
    states = {source: content.state(source) for source in content.journals}
    return content.key, content.number, content.digest, content.files, states


def test_charges_add_up_over_processes_and_a_charge_counts_once(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "new folder" / "ledger")
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.charge(charge(rho=0.002), at=0)
    again = opened(tmp_path / "new folder" / "ledger")
    again.charge(charge(rho=0.002), at=10**9)
    again.charge(charge("b"))
    assert [each.rho for each in ledger.charges()] == [0.002, 0.001]
    assert ledger.spent().rho == pytest.approx(0.003)
    with pytest.raises(ChargeConflict):
        again.charge(charge(rho=0.003))
    with pytest.raises(BudgetExceeded):
        again.charge(charge("all", rho=10.0))
    assert ledger.spent().rho == pytest.approx(0.003)
    assert [each.epsilon for each in (entry.budget for entry in again.journal.budgets)] == [1.0]


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(tmp_path / "ledger")
    for number, time in enumerate((10**12, 10**9, 0)):
        monkeypatch.setattr(any_ledger, "clock", lambda time=time: time)
        ledger.charge(charge(str(number)))
    assert [each.id for each in opened(tmp_path / "ledger").charges()] == ["0", "1", "2"]


def test_no_flipped_bit_shows_anything_else(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    before, whole, chosen = as_told(filled(file)), bytearray(file.read_bytes()), random.Random(1)
    refused = 0
    for place in chosen.sample(range(len(whole)), BYTES_LOOKED_AT):
        changed = whole.copy()
        changed[place] ^= 1 << chosen.randrange(8)
        file.write_bytes(changed)
        try:
            with closing(LedgerFile(file)) as found:
                assert as_told(found.read()) == before, place
        except (LedgerRefused, NotReady):
            refused += 1
    assert refused > BYTES_LOOKED_AT // 10


@pytest.mark.parametrize("kept", [0, 1, 100, 511, 4_096, 8_192, -4_096])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "ledger"
    filled(file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(LedgerRefused, match="ledger"):
        LedgerFile(file).read()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM journal WHERE number = (SELECT max(number) FROM journal)",
        "DELETE FROM journal WHERE number = 2",
        "DELETE FROM journal",
        "UPDATE head SET number = number - 1",
        "DELETE FROM head",
        "UPDATE journal SET number = -number",
        "UPDATE journal SET record = CAST(record AS TEXT)",
        "DROP TABLE head",
    ],
)
def test_records_that_are_lost_or_moved_are_missed(tmp_path: Path, change: str) -> None:
    filled(tmp_path / "ledger")
    file = LedgerFile(tmp_path / "ledger")
    file._database.execute(change)
    with pytest.raises(LedgerDamaged, match="restore it from a backup"):
        file.read()
    with pytest.raises(LedgerDamaged):
        LocalLedger(file, SOURCE).charge(charge("c"))


def test_what_is_no_ledger_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text("no ledger at all\n" * 1_000)
    file.chmod(0o600)
    with pytest.raises(LedgerDamaged):
        LedgerFile(file).read()
    assert file.read_text().startswith("no ledger")


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "ledger"
    LedgerFile(file)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each.name for each in file.parent.iterdir()] == ["ledger"]
    file.chmod(0o640)
    with pytest.raises(LedgerRefused, match=f"chmod 600 {file}"):
        LedgerFile(file)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerRefused, match="Not a directory; nothing was charged"):
        LedgerFile(tmp_path / "file" / "folder" / "ledger")


def test_a_full_disk_charges_nothing_and_loses_nothing(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "ledger")
    ledger.charge(charge())
    ledger._file._database.execute("PRAGMA max_page_count = 1")  # which is that of the file

    def fill() -> None:
        for number in range(100):
            ledger.charge(charge(f"more {number}"))

    with pytest.raises(LedgerRefused, match="the disk is full: nothing is released"):
        fill()
    assert opened(tmp_path / "ledger").charges() == ledger.charges()


def test_a_ledger_that_another_process_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = LedgerFile(tmp_path / "ledger")
    monkeypatch.setattr(ledger_file, "_PATIENCE_SECONDS", 0.05)
    other = opened(tmp_path / "ledger")
    with holder._transaction("BEGIN IMMEDIATE"), pytest.raises(NotReady, match="try again"):
        other.charge(charge())
    other.charge(charge())


def test_of_charges_at_once_only_those_are_made_that_fit(tmp_path: Path) -> None:
    """They also begin the file at once, and each sets the budget."""
    together = Barrier(8)

    def spend(number: int) -> bool:
        together.wait()
        ledger = opened(tmp_path / "ledger")
        ledger.set_budget(1.0, 1e-6, "event")
        try:
            ledger.charge(charge(str(number), rho=0.08, exact=(0.4, 0.0), loss=pure(0.4)))
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(spend, range(8)))
    assert sum(made) == len(opened(tmp_path / "ledger").charges()) == 2


@pytest.mark.parametrize("other", [True, False], ids=["replaced", "deleted"])
def test_a_file_that_is_replaced_while_it_is_open_takes_no_charge(tmp_path: Path, other: bool) -> None:
    file = tmp_path / "ledger"
    ledger = opened(file)
    ledger.charge(charge())
    file.unlink()
    if other:
        filled(file)
    with pytest.raises(LedgerRefused, match="deleted or replaced while it was in use"):
        ledger.charge(charge("b"))
    with pytest.raises(LedgerRefused, match="deleted or replaced"):
        ledger.state()
