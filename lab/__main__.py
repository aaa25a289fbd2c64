"""`python -m lab`."""

from lab.commands import main

if __name__ == "__main__":
    main()
