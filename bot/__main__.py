"""`python -m bot`: the same as `regatta`."""

from bot.cli import main

main()
