"""`stream-dp key`: noise keys that are kept outside Redis, and the keys of processes that need less."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from stream_dp.barriers.key import barrier_key
from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import load_settings
from stream_dp.privacy.keyed_noise import new_key
from stream_dp.store.noise_key import noise_key

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _key() -> None:
    """Create a key in a file that only its owner may read.

    [bold]Example[/]

      stream-dp key new --file noise.key
    """


@app.command("new")
def new(
    file: Annotated[Path, typer.Option("--file", metavar="PATH", help="Where to put it; must not exist.")],
    as_json: options.Json = False,
) -> None:
    """Draw a noise key and put it into a new file that only its owner may read.  The key is never shown.

    Keep a copy where the servers cannot be lost with it: who has it can remove the noise from every release.

    [bold]Examples[/]

      stream-dp key new --file noise.key

      stream-dp key new --file noise.key --json
    """
    write_key(file, new_key())
    if as_json:
        typer.echo(json.dumps({"file": str(file), "noise_key": f"file:{file}"}))
    else:
        typer.echo(f'Made {file}.  Put noise_key = "file:{file}" into stream.toml before the first start.')


@app.command("barriers")
def barriers(
    file: Annotated[Path, typer.Option("--file", metavar="PATH", help="Where to put it; must not exist.")],
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    redis: options.Redis = None,
    as_json: options.Json = False,
) -> None:
    """Derive from a stream's noise key what [bold]stream-dp barriers[/] needs, so that it need not have the noise key.

    Who has it can decide when rounds end, and nothing else.

    [bold]Examples[/]

      stream-dp key barriers --settings stream.toml --file barriers.key

      stream-dp key barriers --stream shop --file barriers.key --json
    """
    chosen = load_settings(settings, stream=stream, redis=redis)
    client = redis_client(chosen.redis_address)
    write_key(file, barrier_key(noise_key(chosen.noise_key, client, chosen.stream, may_create=False)))
    if as_json:
        typer.echo(json.dumps({"file": str(file), "key": f"file:{file}"}))
    else:
        typer.echo(f"Made {file}.  Start stream-dp barriers with --key file:{file}.")


def write_key(file: Path, key: bytes) -> None:
    """Put the key into a new file that only its owner may read."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Mistake(f"{file} exists and is never replaced, as it may be the only copy of a key") from None
    except OSError as error:
        raise Mistake(f"cannot make {file} ({error.strerror}): change --file") from None
    with os.fdopen(descriptor, "w") as opened:
        opened.write(key.hex() + "\n")
        opened.flush()
        os.fsync(descriptor)
