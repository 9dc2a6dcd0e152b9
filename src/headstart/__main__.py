"""`python -m headstart` is the `headstart` command."""

from headstart.cli import main

if __name__ == "__main__":
    main()
