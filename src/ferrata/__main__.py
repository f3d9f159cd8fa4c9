"""`python -m ferrata` is the command `ferrata`."""

from ferrata.cli.main import main

if __name__ == "__main__":
    main()
