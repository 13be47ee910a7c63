"""`python -m skipstone`: the command line, where the script `skipstone` is not on the PATH."""

from skipstone.cli import main

if __name__ == "__main__":
    main()
