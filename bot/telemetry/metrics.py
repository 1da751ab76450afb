"""The bot's metrics for Prometheus, with their meanings; `bot.service.health` serves them."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
KNOWN = frozenset(
    {
        *("issues", "issue_comment", "pull_request", "pull_request_review", "check_run"),
        *("repository", "installation", "installation_repositories", "ping", "push"),
    }
)

DELIVERIES = Counter(
    "regatta_deliveries",
    "Deliveries that came in, by event and by the status they were answered with.",
    ["event", "status"],
    registry=REGISTRY,
)
DELIVERY_SECONDS = Histogram(
    "regatta_delivery_seconds",
    "From a delivery's last byte to its answer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 10),
    registry=REGISTRY,
)
LOOKS = Counter(
    "regatta_looks",
    "Looks at threads, by how they ended: done, later (GitHub's fault), failed (ours).",
    ["outcome"],
    registry=REGISTRY,
)
EFFECTS = Counter(
    "regatta_effects",
    "What was made visible, written or driven, by kind.",
    ["kind"],
    registry=REGISTRY,
)
UNPOSTED = Gauge(
    "regatta_posts_waiting",
    "Comments and check runs that GitHub has refused so far, and that are tried again.",
    registry=REGISTRY,
)
WRITES = Counter(
    "regatta_writes",
    "Writes to GitHub, by who caused them: lab (executions), approver, member or stranger.",
    ["rank"],
    registry=REGISTRY,
)
DEFERRED = Gauge(
    "regatta_writes_deferred",
    "Writes to GitHub that wait for the budget of writes now, by who caused them.",
    ["rank"],
    registry=REGISTRY,
)
WRITES_LEFT = Gauge(
    "regatta_writes_left",
    "Writes to GitHub that the budget allows: of this minute, this hour, and for strangers.",
    ["part"],
    registry=REGISTRY,
)
ASIDE = Gauge(
    "regatta_deliveries_skipped", "Deliveries skipped within seven days.", registry=REGISTRY
)
FULL_LOOK = Gauge(
    "regatta_full_look_timestamp_seconds", "Of the last one; 0: unknown.", registry=REGISTRY
)
WAITING = Gauge("regatta_threads_waiting", "Threads that are due now or later.", registry=REGISTRY)
LEADS = Gauge(
    "regatta_leads", "1 where this process leads, 0 where another does.", registry=REGISTRY
)
STOOD_STILL = Gauge(
    "regatta_loop_stood_still_seconds",
    "Since the loop last came around and all was well; with much to do it takes some seconds.",
    registry=REGISTRY,
)
STUMBLES = Counter(
    "regatta_stumbles",
    "Rounds of the loop that failed as a whole: the store is full or away, say.",
    registry=REGISTRY,
)


def answered(event: str, status: int, seconds: float) -> None:
    """Count a delivery. Its own claims are not used before its signature is checked."""
    DELIVERIES.labels(event if event in KNOWN else "other", str(status)).inc()
    DELIVERY_SECONDS.observe(seconds)


@contextmanager
def looking(later: type[Exception]) -> Iterator[None]:
    """Count a look at a thread; `later` is the error for GitHub's failures."""
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except later:
        outcome = "later"
        raise
    finally:
        LOOKS.labels(outcome).inc()
