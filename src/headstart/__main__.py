"""`python -m headstart` is the `headstart` command."""

from headstart.commands.cli import main

if __name__ == "__main__":
    main()
