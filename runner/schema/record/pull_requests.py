"""What a pull request is told: the plan, the status of its steps, and forecasts."""

from typing import Literal

from pydantic import Field

from runner.lib.base_record import Instant, Record
from runner.lib.bounds import Figure, Seconds, Size, Speed
from runner.schema.metrics import BPB
from runner.schema.record.fields import Isolated, since
from runner.schema.record.plans import Plan
from runner.schema.record.questions import Agent, Person


class Standing(Record):
    """The status of a step when it was planned, and why it would run."""

    state: Literal["cached", "new", "changed", "failed before", "being made"]
    why: str = ""


class Foretold(Record):
    """The forecast of an arm's score before it runs."""

    axis: Literal["model_flops", "hardware_flops", "tokens", "parameters"]
    at: float  # on that axis
    loss: float  # eval/bpb
    low: float
    high: float
    level: float  # the coverage that the interval is meant to have
    law: str  # as text
    rungs: int  # sizes in the fit
    runs: int
    reach: float  # its size as a multiple of the largest fitted one
    words: tuple[str, ...] = ()  # what the interval does not cover


class Spread(Record):
    """The standard deviation between seeds that the lab has measured on similar runs."""

    deviation: float = Field(ge=0)
    arms: int  # arms it was measured on
    freedom: int  # degrees of freedom: seeds minus arms


class Climbed(Record):
    """The lab's figures of a run on a lower rung, for predictions that need them."""

    execution: str
    arm: str
    seed: int
    bpb: Size
    tokens_per_second: Speed | None = None  # as the job reported
    scores: dict[str, Figure] = since({})  # by every other metric

    @property
    def by_metric(self) -> dict[str, float]:
        """All scores."""
        return {BPB: self.bpb, **self.scores}


class Source(Record):
    """The experiment's folder as it ran."""

    tree: str  # Git's tree id: equal to `git rev-parse <commit>:<folder>` if nothing is changed
    commit: str = ""  # the commit of the checkout, if the folder was in one
    changed: bool = False  # it differs from that commit


class PlanRecord(Record):
    """What the lab found at one head of a pull request: a plan, or problems."""

    repository: int
    pull: int
    n: int
    commit: str
    at: Instant
    plan: Plan | None
    problems: tuple[str, ...] = ()
    standings: dict[str, Standing] = {}  # of steps
    drifted: tuple[str, ...] = ()  # aliases that would change their meaning, each with what to do
    source: "Source | None" = None
    base_ref: str = ""  # the branch that the pull request merges into
    head_repository: int | None = None
    policy: str = ""  # commit of the default branch whose policy was read
    code: str = ""  # unguessable; `/run <code>` approves exactly this plan
    limit_seconds: float | None = None  # wall time that its execution may take
    pending_limit_seconds: float | None = since(None)  # that Ray may let it wait
    isolation: Isolated = ""  # of own code; "": it cannot run here
    forecasts: dict[str, Foretold] = since({})  # by arm
    no_forecast: dict[str, str] = since({})  # by arm: why there is no forecast
    spread: Spread | None = since(None)  # of similar runs, as known then
    spreads: dict[str, Spread] = since({})  # the same by other metrics that predictions name
    per_step: Seconds | None = since(None)  # that a step takes besides training, as known then
    other_design: str = since("")  # the execution that sealed another design under the same issue
    begun: str = since("")  # the execution that started its runs before their issue was sealed
    climbed: tuple[Climbed, ...] = since(())  # results of earlier rungs
    author: Person | None = since(None)  # of the pull request
    agent: Agent | None = since(None)  # that opened the pull request
    needs_maintainer: str = since("")  # why the policy does not approve the agent's plan by itself
