"""`valueshare` and `python -m valueshare`: the command line, from its first import on."""

import sys


def run() -> None:
    """Run a command; Ctrl-C ends it with one line even while libraries are being loaded."""
    try:
        from valueshare.cli import main

        main()
    except KeyboardInterrupt:
        print("valueshare: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
