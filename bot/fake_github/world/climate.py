"""A climate: GitHub late, limited and forgetful, by chance, and the same again for a seed.

| what | how GitHub does it | reported as |
| --- | --- | --- |
| lag | reads of a replica that is 0 to 5 s behind | atlantis#1019, homu#216, test-infra#2229 |
| lag, written to | 404, or 422 "No commit found" | homu#141, service-hub#394 |
| block | 403 "… blocked from content creation" for 60 to 72 s | PyGithub#810, ThrillhouseBot#722 |
| limit | 429 with a date, 403 of the abuse detection | nori#155, policy-bot#136 |
| too quickly | 422 and `errors[]`: "was submitted too quickly" | cli#4801, lookout#264 |
| failure | 5xx with a page, before or after the effect | PyGithub#2047, lookout#264 |
| broken | the connection ends, or within the answer | perceval#471 |
| lost | a delivery is never made | homu#178, bors-ng#187 |
| late, twice | it comes a minute late, or twice; so out of order | go-github#2706, unkey#4899 |
| labels | somebody adds one right before the bot writes | labeler#763, issue-labeler#43 |
| (rates) | 80 and 500 creations, 5,000 requests | docs.github.com: REST, Rate limits |
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import timedelta
from email.utils import format_datetime

from bot.fake_github.world.errors import Refused, invalid, not_found, unprocessable
from bot.fake_github.world.faults import Fault, Kind
from bot.fake_github.world.history import History
from bot.fake_github.world.state import World

# Of reads, of writes or of deliveries: how many meet what.
CLIMATES = {
    "mild": {"lag": 0.2, "failure": 0.02, "too quickly": 0.02, "late": 0.05, "twice": 0.05},
    "worst": {
        **{"lag": 0.4, "block": 0.01, "limit": 0.005, "too quickly": 0.05, "failure": 0.15},
        **{"broken": 0.04, "lost": 0.04, "late": 0.15, "twice": 0.1, "labels": 0.5},
    },
}
MAX_LAG = 5.0  # seconds
UNICORN = "<!DOCTYPE html>\n<html><head><title>Unicorn! &middot; GitHub</title></head></html>"
PAGE = {"content-type": "text/html; charset=utf-8"}
BLOCKED = (
    "You have exceeded a secondary rate limit and have been temporarily blocked from content "
    "creation. Please retry your request again later. If you reach out to GitHub Support for "
    "help, please include the request ID 9C1A:2B6F:1D2E3F:4A5B6C:65F0A1B2."
)
WAIT = "Please wait a few minutes before you try again."
ABUSE = f"You have triggered an abuse detection mechanism. {WAIT}"
LIMITED = f"You have exceeded a secondary rate limit. {WAIT}"
TOO_QUICKLY = invalid("IssueComment", "data", "unprocessable", "was submitted too quickly")
BROKEN: tuple[Kind, ...] = ("drop_before", "drop_after", "cut")
UNLISTED = ("check_run", "installation", "repository")  # events that no list of GitHub's shows


class Climate:
    """What requests and deliveries meet. `calm` ends it, except for what is under way."""

    def __init__(self, world: World, name: str = "worst", seed: int = 1) -> None:
        self.calm, self.met = False, Counter[str]()
        self._shares, self._chance = CLIMATES[name], random.Random(seed)
        self._world, self._history = world, History(world)
        self._blocked_until = world.clock.now()
        self._people = random.Random(f"{seed}, people")  # they change nothing of what GitHub does
        self.labelled: dict[int, set[str]] = {}  # by somebody, and to stay
        world.history = self._history

    def past(self, method: str, path: str, body: bytes) -> World | Refused | None:
        """The past that a read shows; for a write, the refusal of a subject that is not there yet.
        None: it is answered as things are."""
        if not path.startswith("/repos/") or not self._happens("lag"):
            return None
        seconds = self._chance.uniform(0, MAX_LAG)
        past = self._history.at(self._world.clock.now() - timedelta(seconds=seconds))
        if method == "GET":
            return past
        for pattern, there in ((r"/issues/(\d+)", past.issues), (r"ments/(\d+)", past.comments)):
            if (named := re.search(pattern, path)) and int(named[1]) not in there:
                return not_found()
        sha = str(json.loads(body).get("head_sha")) if path.endswith("/check-runs") else ""
        if sha and not past.git.resolve(sha):
            return unprocessable(f"No commit found for SHA: {sha}")
        return None

    def fault(self, method: str, path: str) -> Fault | None:
        """What a request meets."""
        now, writes = self._world.clock.now(), method != "GET"
        if not path.startswith("/repos/"):
            return None
        if writes and self._happens("block"):
            self._blocked_until = now + timedelta(seconds=self._chance.randint(60, 72))
        if writes and now < self._blocked_until:
            says_when = int(self._blocked_until.timestamp()) % 2
            return _refusal(Refused(403, BLOCKED), {"retry-after": "60"} if says_when else {})
        if self._happens("limit"):
            date = format_datetime(now + timedelta(seconds=20), usegmt=True)
            by_date = _refusal(Refused(429, LIMITED), {"retry-after": date})
            return self._chance.choice(
                (by_date, _refusal(Refused(403, ABUSE), {"retry-after": "30"}))
            )
        if path.endswith(("/comments", "/check-runs")) and writes and self._happens("too quickly"):
            return _refusal(TOO_QUICKLY)
        if self._happens("failure"):
            after: Kind = "status_after" if writes else "status_before"
            kind = self._chance.choice((after, "status_before"))
            return Fault(kind, status=502, body=UNICORN, headers=PAGE)
        return Fault(self._chance.choice(BROKEN)) if self._happens("broken") else None

    def label(self, method: str, path: str) -> tuple[int, str] | None:
        """The thread to which somebody adds this label right before the bot changes its labels."""
        found = re.search(r"/issues/(\d+)/labels", path)
        if method == "GET" or not found or not self._happens("labels", self._people):
            return None
        number = int(found[1])
        name = f"size/{self._people.randint(1, 9)}"
        self.labelled.setdefault(number, set()).add(name)
        return number, name

    def fate(self, event: str) -> list[float]:
        """After how many seconds a delivery is made; each time again."""
        if event not in UNLISTED and self._happens("lost"):
            return []
        first = self._chance.uniform(1, 90) if self._happens("late") else 0.0
        again = [self._chance.uniform(0, 120)] if self._happens("twice") else []
        return [first, *again]

    def _happens(self, what: str, chance: random.Random | None = None) -> bool:
        chance = chance or self._chance
        happens = not self.calm and chance.random() < self._shares.get(what, 0.0)
        self.met[what] += happens
        return happens


def _refusal(refused: Refused, headers: dict[str, str] | None = None) -> Fault:
    body = json.dumps(refused.as_json())
    return Fault("status_before", status=refused.status, body=body, headers=headers or {})
