"""`python -m benchcast` is `benchcast`."""

from benchcast.cli import main

main()
