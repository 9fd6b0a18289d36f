"""Whether anyone can reach a Redis without a password."""

from ipaddress import ip_address
from typing import Any

from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

_CREDENTIALS = ("username", "password", "credential_provider")
_EVERYWHERE = ("", "*", "-::*", "0.0.0.0", "::")


def exposed(redis: Redis) -> str | None:
    """What to change where others may read the state and the noise key; None if nothing is known to be wrong.

    Raises a `RedisError` where Redis does not answer.
    """
    options = redis.connection_pool.connection_kwargs
    if options.get("ssl_certfile") or not _lets_in_without_password(redis):
        return None
    host = str(options.get("host", ""))
    if host and not _is_loopback(host):
        which = f"Redis at {host}"
    elif addresses := _open_addresses(redis):
        which = f"Redis, which listens on {addresses} with protected-mode no,"
    else:
        return None
    return (
        f"{which} asks for no password, so whoever can reach it can read true counts and the noise key: set "
        "requirepass there, and redis_password in the settings"
    )


def _lets_in_without_password(redis: Redis) -> bool:
    pool = redis.connection_pool
    options: dict[str, Any] = {
        name: value for name, value in pool.connection_kwargs.items() if name not in _CREDENTIALS
    }
    stranger = pool.connection_class(**options)
    try:
        stranger.connect()
        stranger.send_command("PING")
        return stranger.read_response() in (b"PONG", "PONG")
    except (AuthenticationError, NoPermissionError, ResponseError):
        return False
    finally:
        stranger.disconnect()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _open_addresses(redis: Redis) -> str:
    """Addresses of other machines' reach on which it listens unprotected; none where it does not tell."""
    try:
        told = {name: str(redis.config_get(name).get(name, "")) for name in ("bind", "protected-mode")}
    except ResponseError:  # a managed Redis may not permit the question
        return ""
    if told["protected-mode"] != "no":
        return ""
    bound = told["bind"].split() or [""]
    open_to = [
        address for address in bound if address in _EVERYWHERE or not _is_loopback(address.lstrip("-"))
    ]
    return " ".join(address or "*" for address in open_to)
