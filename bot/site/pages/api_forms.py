"""The forms of the site's JSON, as JSON Schemas: what a program may rely on. Files have more keys
than these; keys may be added, and none of these is removed or changes its meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from bot.model import comment_data


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow")


class VerdictForm(_Form):
    """A verdict on a prediction."""

    prediction: str
    confidence: float
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    why: str


class SpentForm(_Form):
    """Hardware FLOPs of one run."""

    low: float
    high: float
    how: Literal["measured", "reported", "estimated"]


class RowForm(_Form):
    """An arm of an execution on a leaderboard."""

    rank: int | None = Field(description="null: it has none, for want of seeds")
    rank_shared: bool
    execution: str
    page: str = Field(description="relative to the site")
    title: str
    arm: str
    spread: float | None = Field(description="standard deviation over seeds")
    seeds: int = Field(description="that have a score")
    seeds_planned: int
    scores: dict[str, dict[str, float | None]] = Field(description="by metric and seed")
    parameters: int | None
    tokens: int
    model_flops: int | None
    hardware_flops: SpentForm | None
    at: str
    repository: str | None
    pull: int | None
    commit: str | None
    fingerprint: str
    verdicts: list[VerdictForm]


class GroupForm(_Form):
    """A board: rows with comparable scores."""

    rows: list[RowForm]


class RunningForm(_Form):
    """An execution without a result."""

    execution: str
    title: str
    state: str


class WishForm(_Form):
    """A sealed question for which nothing has run."""

    repository: int
    issue: int
    title: str
    seal: str


class Leaderboard(_Form):
    """Every leaderboard, what runs, and open questions."""

    groups: list[GroupForm]
    running: list[RunningForm]
    wishlist: list[WishForm]


class TrackRowForm(_Form):
    """An entry of a track."""

    id: str
    title: str
    rank: int | None
    record: bool
    value: float | None
    p_value: float | None
    needs: float | None
    tier: str


class TrackForm(_Form):
    """A track of the speedrun."""

    track: dict[str, Any]
    rows: list[TrackRowForm]


class Speedrun(RootModel[dict[str, TrackForm]]):
    """Tracks by name."""


class Entries(RootModel[list[dict[str, Any]]]):
    """Results that were made elsewhere."""


class ForecastForm(_Form):
    """A judged prediction."""

    prediction: str
    confidence: float
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    author: str
    counts: bool
    execution: str
    at: str


class Forecasts(RootModel[list[ForecastForm]]):
    """Predictions of people and agents, newest first."""


class ForetoldForm(_Form):
    """A forecast of the lab, with its outcome."""

    arm: str
    seed: int
    loss: float
    low: float
    high: float
    level: float
    measured: float
    inside: bool
    counts: bool
    execution: str


class Foretold(RootModel[list[ForetoldForm]]):
    """Forecasts of the lab, newest first."""


class RefusedForm(_Form):
    """A plan that the policy refused."""

    pull: int
    plan: int
    why: str


class AgentForm(_Form):
    """An agent of the lab."""

    login: str
    sponsor: str = Field(description="who answers for it")
    executions: list[str]
    approved_by_policy: int
    approved_by_people: int
    promoted: int = Field(description="executions of a higher rung than the first")
    refused: list[RefusedForm]
    device_hours: dict[str, float] = Field(description="used, by kind")
    brier: float | None = Field(description="mean of (confidence − outcome)²; lower is better")
    decided: int = Field(description="predictions that were confirmed or refuted")
    confirmed: int | None
    confirmed_interval: tuple[float, float] | None = Field(description="95 %, of the share")


class Agents(RootModel[list[AgentForm]]):
    """The lab's agents."""


class SearchForm(_Form):
    """A search in which a program proposed declarations."""

    search: str
    terms: dict[str, Any]
    trials: list[dict[str, Any]]
    end: dict[str, Any] | None
    finding: str | None


class Searches(RootModel[list[SearchForm]]):
    """Searches, newest first."""


class Studies(_Form):
    """The studies of an execution, each with its kind."""

    studies: list[dict[str, Any]]


class Sealed(_Form):
    """A sealed forecast of the lab."""

    seal: dict[str, Any]
    seal_sha256: str
    outcome: dict[str, Any] | None


class SealedOnes(RootModel[dict[str, Sealed]]):
    """Sealed forecasts by name."""


class KeyForm(_Form):
    """A public key."""

    id: str
    ed25519: str


class Keys(_Form):
    """The lab's public keys."""

    keys: list[KeyForm]


class Signed(_Form):
    """A signed record."""

    record: dict[str, Any]
    sha256: str
    signature: str
    key: str
    kind: str
    path: str


@dataclass(frozen=True)
class File:
    """A kind of file."""

    path: str  # `<name>` is a part that differs
    name: str  # of its schema
    form: type[BaseModel]
    words: str


FILES = (
    File(
        "api/leaderboard.json",
        "leaderboard",
        Leaderboard,
        "every board with its rows, what runs, and open questions",
    ),
    File("api/speedrun.json", "speedrun", Speedrun, "each track with its entries"),
    File("api/forecasts.json", "forecasts", Forecasts, "predictions and their outcomes"),
    File(
        "api/agents.json",
        "agents",
        Agents,
        "agents, with their executions, spending and calibration",
    ),
    File("api/foretold.json", "lab-forecasts", Foretold, "forecasts of the lab and their outcomes"),
    File("api/searches.json", "searches", Searches, "searches in which a program proposed"),
    File("api/entries.json", "entries", Entries, "results that were made elsewhere"),
    File(
        "api/studies/<execution>.json",
        "studies",
        Studies,
        "the studies of an execution: ablations, IsoFLOP, tuning",
    ),
    File("api/delphi.json", "sealed-forecasts", SealedOnes, "the lab's sealed forecasts"),
    File("api/delphi/<name>.json", "sealed-forecast", Sealed, "one of them"),
    File("api/keys.json", "keys", Keys, "the lab's public keys, if it signs"),
    File("api/signed/<path>.json", "signed", Signed, "signed records"),
)
COMMENTS = {
    name: (f"comment-{name}", form, (form.__doc__ or "").strip())
    for name, form in comment_data.KINDS.items()
}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas by name."""
    return dict(_schemas())


def _schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    forms: list[tuple[str, type[BaseModel]]] = [(one.name, one.form) for one in FILES]
    forms += [(name, form) for name, form, _ in COMMENTS.values()]
    for name, form in forms:
        schema = TypeAdapter(form).json_schema(mode="serialization")
        yield name, {"$schema": DRAFT, "title": name, **schema}
