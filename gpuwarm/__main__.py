"""`python -m gpuwarm`."""

from gpuwarm.cli import main

main()
