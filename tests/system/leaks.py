"""Searching what a system wrote for secrets, in every form in which they may show."""

import base64
from pathlib import Path
from urllib.parse import quote

LOUD = str(Path(__file__).with_name("loud_worker.py"))
"""The worker that logs all there is to log."""


def forms(secret: bytes) -> set[bytes]:
    """How a secret may look in a text: raw, in hexadecimal, in base 64, as Python or a URL shows it."""
    encoded = {base64.b64encode(secret), base64.urlsafe_b64encode(secret)}
    shown = {repr(secret)[2:-1].encode(), repr(list(secret)).encode(), quote(secret, safe="").encode()}
    hexadecimal = {secret.hex().encode(), secret.hex().upper().encode(), secret.hex(" ").encode()}
    return {secret} | {each.rstrip(b"=") for each in encoded} | shown | hexadecimal


def leaks(secrets: dict[str, bytes], places: dict[str, bytes]) -> list[tuple[str, str]]:
    """Which secret is in which place."""
    return [
        (secret, place)
        for place, text in places.items()
        for secret, value in secrets.items()
        if any(form in text for form in forms(value))
    ]
