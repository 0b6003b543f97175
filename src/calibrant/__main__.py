"""`python -m calibrant`: the command line, as torchrun starts it."""

from calibrant.cli import main

if __name__ == "__main__":
    main()
