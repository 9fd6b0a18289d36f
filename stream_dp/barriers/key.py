"""What a process needs to write barriers."""

from stream_dp.config.secret import SettingsError
from stream_dp.privacy.keyed_noise import KEY_BYTES, subkey


def barrier_key(noise_key: bytes) -> bytes:
    """32 bytes that can do nothing else: neither the noise key nor any noise follows from them."""
    return subkey(noise_key, b"barrier")


def parsed_key(text: str) -> bytes:
    """The key that `text` holds in hexadecimal digits.  Raises `SettingsError`."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"the barrier key must have {2 * KEY_BYTES} hexadecimal digits: make it with stream-dp key barriers"
        )
    return key
