"""The name of the person who runs a command, for records that people read later."""

import getpass
import socket


def whoever() -> str:
    """This user on this machine: "anna@ops-1"."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run a number that has no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
