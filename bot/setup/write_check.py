"""The doctor's check of the writes to GitHub: do strangers still have room?"""

from datetime import UTC, datetime

from bot.controller.write_budget import LIMITS, POOL, Rank
from bot.controller.write_log import lately
from bot.inbox import deliveries as inbox_deliveries
from bot.setup.findings import need
from runner.store.store import Store


def writes(place: str) -> str:
    """How much the bot of the store at `place` wrote within the last hour. Raises Wrong if
    strangers have used up their part."""
    store, now = Store(place, make=False), datetime.now(UTC)
    ids = [int(name) for name in store.list("writes") if name.isdigit()]
    ranks = [cause.rank for id in ids for _, cause in lately(store, id, now)]
    pending = sum(1 for id in ids for _ in inbox_deliveries.waiting(store, id))
    (_, limit), used = LIMITS[-1], ranks.count(Rank.STRANGER)
    share = int(limit * POOL[Rank.STRANGER])
    words = (
        f"the lab wrote {len(ranks)} times within an hour and may {limit} times, {used} of {share} "
        f"times because of strangers; {pending} deliveries wait."
    )
    mend = (
        "Nothing is lost, and nobody else waits. To stop a flood, block the account, or set "
        "Interaction limits in the repository's settings on GitHub."
    )
    need(used < share, words, mend)
    return words
