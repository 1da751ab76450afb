"""What a pull request is told: its plan, how steps stand, and what is foretold."""

from typing import Literal

from pydantic import Field

from runner.lib.base_record import Instant, Record
from runner.lib.bounds import Size, Speed
from runner.schema.record.fields import Isolated, since
from runner.schema.record.plans import Plan


class Standing(Record):
    """How a step stood when it was planned, and why it would be made."""

    state: Literal["cached", "new", "changed", "failed before", "being made"]
    why: str = ""


class Foretold(Record):
    """What the lab says that one run of an arm will score, before it is made."""

    axis: Literal["model_flops", "hardware_flops", "tokens", "parameters"]
    at: float  # on that axis
    loss: float  # eval/bpb
    low: float
    high: float
    level: float  # how often such an interval is to hold
    law: str  # in words
    rungs: int  # sizes that the law was fitted on
    runs: int
    reach: float  # how many times the largest of them
    words: tuple[str, ...] = ()  # what the interval does not cover


class Spread(Record):
    """The standard deviation between seeds, as the lab has seen it on runs of a kind."""

    deviation: float = Field(ge=0)
    arms: int  # that it was seen on
    freedom: int  # degrees of freedom, that is, how many seeds more than arms


class Climbed(Record):
    """The lab's own figure of a run on a lower rung of a ladder, which predictions may rest on."""

    execution: str
    arm: str
    seed: int
    bpb: Size
    tokens_per_second: Speed | None = None  # as the job reported


class Source(Record):
    """An experiment's folder as it was run."""

    tree: str  # Git's id of it: equal to `git rev-parse <commit>:<folder>` where nothing is changed
    commit: str = ""  # that was checked out, if the folder lay in a checkout
    changed: bool = False  # it is not as that commit has it


class PlanRecord(Record):
    """What the lab found at one head of a pull request: a plan, or what is wrong."""

    repository: int
    pull: int
    n: int
    commit: str
    at: Instant
    plan: Plan | None
    problems: tuple[str, ...] = ()
    standings: dict[str, Standing] = {}  # of steps
    drifted: tuple[str, ...] = ()  # aliases that would mean something else, each with what to do
    source: "Source | None" = None
    base_ref: str = ""  # the branch that the pull request is to be merged into
    head_repository: int | None = None
    policy: str = ""  # commit of the default branch whose policy was read
    code: str = ""  # unguessable; `/run <code>` approves exactly this plan
    limit_seconds: float | None = None  # that its execution may take by the clock
    isolation: Isolated = ""  # of own code; "": it cannot run here
    forecasts: dict[str, Foretold] = since({})  # by arm
    no_forecast: dict[str, str] = since({})  # why of these arms there is none
    spread: Spread | None = since(None)  # of such runs, as it was known then
    other_design: str = since("")  # the execution that had sealed another one under its issue
    begun: str = since("")  # the execution that had begun its runs before their issue was sealed
    climbed: tuple[Climbed, ...] = since(())  # what the rungs before came to
