"""How many examples Hypothesis tries: few each day, `REGATTA_EXAMPLES` times as many in CI."""

import os

from hypothesis import settings

TIMES = int(os.environ.get("REGATTA_EXAMPLES", "1"))


def examples(daily: int) -> int:
    """For `settings(max_examples=…)`."""
    return daily * TIMES


# No example fails by the clock: whoever else uses this machine would decide.
settings.register_profile("regatta", deadline=None, max_examples=examples(20))
settings.load_profile("regatta")
