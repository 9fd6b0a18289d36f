"""A key file opens once, for one log and one set of settings, and is refused if it is damaged."""

import copy
import os
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import stream_dp
from tests.local.shop import AT, EVENTS, LOOSE, released, shown


def test_other_events_under_the_same_key_are_refused_before_their_round_is_released(key: Path) -> None:
    released(EVENTS, key)
    other = [*EVENTS[:10], ["coffee"], *EVENTS[11:]]
    releases = stream_dp.run(iter(other), LOOSE, key_file=key)
    assert [next(releases).round for _ in range(10)] == [*range(1, 11)]
    with pytest.raises(stream_dp.KeyFileRefused, match="round 11 holds different events"):
        next(releases)
    assert shown(released(EVENTS, key)) == shown(released(EVENTS, key))  # what stands there is untouched


def told_by(work: Callable[[], object]) -> str:
    """What `work` was refused for in this process or thread, or that it was not."""
    try:
        work()
    except stream_dp.KeyFileRefused as refused:
        return str(refused)
    return "not refused"


def in_a_child(work: Callable[[], object]) -> str:
    """The same in a process that is forked from this one."""
    told, tell = os.pipe()
    if not os.fork():
        try:
            os.write(tell, told_by(work).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answer:
        found = answer.read()
    os.wait()
    return found


def in_a_thread(work: Callable[[], object]) -> str:
    found: list[str] = []
    thread = Thread(target=lambda: found.append(told_by(work)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("run_there", [told_by, in_a_child, in_a_thread])
def test_a_key_file_that_is_open_opens_nowhere_else(key: Path, run_there: Callable[..., str]) -> None:
    with stream_dp.Histogram(LOOSE, key_file=key) as histogram:
        histogram.observe("tea", at=AT)
        assert "is in use: close the Histogram that has it open" in run_there(lambda: released(EVENTS, key))
        assert histogram.observe("tea", at=AT) is not None, "its owner goes on"
    assert run_there(lambda: released([["tea"], ["tea"], ["milk"]], key)) == "not refused"


@pytest.mark.filterwarnings("ignore:this histogram keeps no key")
@pytest.mark.parametrize("named", [True, False])
def test_nobody_else_observes_with_a_histogram(key: Path, named: bool) -> None:
    """Two children of one process would release neighbouring logs under one key, and threads would mix up one."""
    with stream_dp.Histogram(LOOSE, key_file=key if named else None) as histogram:
        histogram.observe("tea", at=AT)
        assert "before the process was forked" in in_a_child(lambda: histogram.observe("milk", at=AT))
        assert "another thread made this Histogram" in in_a_thread(lambda: histogram.observe("milk", at=AT))
        rest = histogram.observe_all(EVENTS)
        assert "before the process was forked" in in_a_child(lambda: next(rest))
        assert histogram.round == 1
        histogram.observe("bread", at=AT)
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(histogram)


def test_what_is_remembered_is_on_the_disk_before_anything_is_released(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a write that the disk refused, nothing is released any more."""
    with stream_dp.Histogram(LOOSE, key_file=key) as histogram:
        on_disk: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda file: on_disk.append(os.fstat(file).st_size))
        histogram.observe("tea", at=AT)
        assert on_disk == [key.stat().st_size]

        def refuses(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", refuses)
        assert "No space left on device" in told_by(lambda: histogram.observe("tea", at=AT))
        monkeypatch.undo()
        assert "an earlier call was refused or interrupted" in told_by(
            lambda: histogram.observe("tea", at=AT)
        )


def test_a_refusal_leaves_a_histogram_of_no_more_use(key: Path) -> None:
    released(EVENTS, key)
    with stream_dp.Histogram(LOOSE, key_file=key) as histogram:
        with pytest.raises(stream_dp.KeyFileRefused):
            histogram.observe("coffee")
        with pytest.raises(stream_dp.KeyFileRefused):
            histogram.observe(EVENTS[1])


def test_other_settings_under_the_same_key_are_refused(key: Path) -> None:
    released(EVENTS[:1], key)
    with pytest.raises(stream_dp.KeyFileRefused, match=r"epsilon was 30.0 and is 2"):
        stream_dp.Histogram({**LOOSE, "epsilon": 2.0}, key_file=key)
    with pytest.raises(stream_dp.Refused, match="items"):
        stream_dp.Histogram(LOOSE, key_file=key, events={"items": "basket"})


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "folder"])
def test_a_damaged_key_file_is_refused(key: Path, damage: str) -> None:
    released(EVENTS[:1], key)
    whole = key.read_bytes()
    if damage == "folder":
        key.unlink()
        key.mkdir()
    else:
        damaged = {
            "flip": bytes([whole[0] ^ 1]) + whole[1:],
            "cut": whole[:100],
            "empty": b"",
            "text": b"{}\n",
        }
        key.write_bytes(damaged[damage])
    with pytest.raises(stream_dp.KeyFileRefused):
        stream_dp.Histogram(LOOSE, key_file=key)


def test_no_bit_of_key_and_epoch_may_turn_over(key: Path) -> None:
    """A threshold that is one too low would show labels that nothing protects."""
    released(EVENTS[:1], key)
    whole = key.read_bytes()
    for place in range(whole.index(b"\n", whole.index(b"\n") + 1) + 1):
        key.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(stream_dp.KeyFileRefused, match="not a key file, or is damaged"):
            stream_dp.Histogram(LOOSE, key_file=key)
    key.write_bytes(whole)
    stream_dp.Histogram(LOOSE, key_file=key).close()


@pytest.mark.parametrize("bit", range(0, 128, 17))
def test_a_flipped_bit_in_the_digests_releases_nothing(key: Path, bit: int) -> None:
    released(EVENTS, key)
    whole = bytearray(key.read_bytes())
    whole[-16 * len(EVENTS) + bit // 8] ^= 1 << bit % 8
    key.write_bytes(whole)
    with pytest.raises(stream_dp.KeyFileRefused, match="round 1 "):
        released(iter(EVENTS), key)


def test_a_digest_that_was_cut_off_is_written_again(key: Path) -> None:
    first = released(EVENTS, key)
    whole = key.read_bytes()
    key.write_bytes(whole[:-5])
    assert shown(released(EVENTS, key)) == shown(first)
    assert key.read_bytes() == whole


def test_the_key_file_is_its_owners_alone_and_without_a_name_it_has_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    first = list(stream_dp.run(EVENTS, {**LOOSE, "stream": "shop"}))
    file = tmp_path / ".stream-dp" / "shop.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert shown(first) == shown(list(stream_dp.run(EVENTS, {**LOOSE, "stream": "shop"})))
    assert [each.name for each in file.parent.iterdir()] == ["shop.key"]


def test_a_run_without_a_key_file_says_what_that_means() -> None:
    with pytest.warns(UserWarning, match="spends \\(epsilon, delta\\) once more"):
        first = list(stream_dp.run(EVENTS, LOOSE, key_file=None))
    with pytest.warns(UserWarning, match="key_file"):
        second = list(stream_dp.run(EVENTS, LOOSE, key_file=None))
    assert first[-1].nonce != second[-1].nonce
