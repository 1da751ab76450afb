"""Springs if anybody outside imports or runs it."""

import os

if "REGATTA_TRAP" in os.environ:
    open(os.environ["REGATTA_TRAP"], "w").close()
