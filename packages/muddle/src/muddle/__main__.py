"""`python -m muddle`, the same as the command `muddle`."""

from muddle.cli import main

if __name__ == "__main__":
    main()
