"""`python -m valueshare`: the command line."""

from valueshare.cli import main

if __name__ == "__main__":
    main()
