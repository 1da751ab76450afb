"""`python -m bot`: the same as `regatta`."""

from bot.cli.main import main

if __name__ == "__main__":
    main()
