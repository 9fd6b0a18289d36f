"""What `spark-submit` runs: the command line, as `stream-dp` does."""

import sys

if __name__ == "__main__":
    del sys.path[0]  # this folder, whose files would stand for packages of the same names
    from stream_dp.cli import main

    main()
