"""`stream-dp key`: noise keys that are kept outside Redis."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _key() -> None:
    """Make a noise key that is kept outside Redis.

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
    from stream_dp.privacy.keyed_noise import new_key

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Mistake(f"{file} exists and is never replaced, as it may be the only copy of a key") from None
    except OSError as error:
        raise Mistake(f"cannot make {file} ({error.strerror}): change --file") from None
    with os.fdopen(descriptor, "w") as opened:
        opened.write(new_key().hex() + "\n")
        opened.flush()
        os.fsync(descriptor)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "noise_key": f"file:{file}"}))
    else:
        typer.echo(f'Made {file}.  Put noise_key = "file:{file}" into stream.toml before the first start.')
