"""Where the noise key comes from, and that no mistake about it shows any of it."""

from pathlib import Path

import pytest
from redis import Redis

from stream_dp.store.noise_key import NoKey, noise_key

KEY = bytes(range(32))


def test_redis_makes_a_key_once_and_keeps_it(redis: Redis) -> None:
    key = noise_key("redis", redis, "s", may_create=True)
    assert len(key) == 32
    assert key == noise_key("redis", redis, "s", may_create=True)
    assert key == noise_key("redis", redis, "s", may_create=False)
    assert key != noise_key("redis", redis, "another stream", may_create=True)


def test_a_key_that_was_in_use_is_never_made_again(redis: Redis) -> None:
    with pytest.raises(NoKey, match="lost"):
        noise_key("redis", redis, "s", may_create=False)
    assert redis.keys("*") == []


def test_the_environment_gives_a_key_that_never_reaches_redis(redis: Redis) -> None:
    found = noise_key("env:MY_KEY", redis, "s", True, {"MY_KEY": f" {KEY.hex().upper()}\n"})
    assert found == KEY
    assert redis.keys("*") == []


def test_a_private_file_gives_a_key(redis: Redis, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY.hex() + "\n")
    file.chmod(0o600)
    assert noise_key(f"file:{file}", redis, "s", True) == KEY
    file.chmod(0o400)
    assert noise_key(f"file:{file}", redis, "s", True) == KEY
    assert redis.keys("*") == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644])
def test_a_file_that_others_may_open_is_refused(redis: Redis, tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text(KEY.hex())
    file.chmod(mode)
    with pytest.raises(NoKey, match="chmod 600"):
        noise_key(f"file:{file}", redis, "s", True)


WRONG = {
    "too short": KEY.hex()[:-2],
    "too long": KEY.hex() + "00",
    "odd": KEY.hex()[:-1],
    "no digits": "g" + KEY.hex()[1:],
    "empty": "",
    "not ASCII": "é" + KEY.hex()[1:],
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_key_is_named_and_not_shown(redis: Redis, tmp_path: Path, mistake: str) -> None:
    """Neither in the message nor in the exception behind it, which a stack trace would print."""
    file = tmp_path / "key"
    file.write_text(WRONG[mistake])
    file.chmod(0o600)
    for source, place in ((f"file:{file}", str(file)), ("env:MY_KEY", "MY_KEY")):
        with pytest.raises(NoKey, match="key of") as refused:
            noise_key(source, redis, "s", True, {"MY_KEY": WRONG[mistake]})
        told = f"{refused.value} {refused.value.__cause__ or ''}"
        assert place in told
        assert KEY.hex()[4:16] not in told
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("damaged", [b"", b"short", bytes(33), ["a list"]])
def test_what_cannot_be_a_key_in_redis_is_refused_until_an_epoch_begins_without_it(
    redis: Redis, damaged: bytes | list[str]
) -> None:
    name = "stream_dp:{s}:key"
    if isinstance(damaged, bytes):
        redis.set(name, damaged)
    else:
        redis.rpush(name, *damaged)
    dumped = redis.dump(name)
    with pytest.raises(NoKey, match=r"noise key of this stream does not have 32 bytes.* --new-epoch"):
        noise_key("redis", redis, "s", False)
    key = noise_key("redis", redis, "s", True)
    assert key == noise_key("redis", redis, "s", False) == noise_key("redis", redis, "s", True)
    assert redis.dump(f"{name}:damaged") == dumped


def test_what_is_not_there_is_said(redis: Redis, tmp_path: Path) -> None:
    with pytest.raises(NoKey, match="MY_KEY"):
        noise_key("env:MY_KEY", redis, "s", True, {})
    with pytest.raises(NoKey, match="No such file"):
        noise_key(f"file:{tmp_path / 'none'}", redis, "s", True)
    with pytest.raises(NoKey):
        noise_key(f"file:{tmp_path}", redis, "s", True)


def test_a_binary_file_is_no_key(redis: Redis, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(bytes(range(128, 160)))
    file.chmod(0o600)
    with pytest.raises(NoKey, match="64 hexadecimal digits"):
        noise_key(f"file:{file}", redis, "s", True)
