"""`python -m calibrant`: the command line, which torchrun starts so."""

from calibrant.cli import main

if __name__ == "__main__":
    main()
