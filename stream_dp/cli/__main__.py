"""`python -m stream_dp.cli`: the command line where the `stream-dp` script is not on the path."""

from stream_dp.cli import main

main()
