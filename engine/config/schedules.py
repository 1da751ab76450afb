"""Schedules of a pipeline as data, and a simulator of them. A stage holds one or more chunks of
neighbouring layers; chunk c is on stage c mod S. A batch goes through the chunks in parts
(microbatches). A schedule is a table: what each stage does, in order. Needs no JAX.

    gpipe        all parts forward, then all backward (Huang et al. 2019, arXiv 1811.06965)
    1f1b         one forward, one backward, so that a stage keeps S parts at most (Narayanan et al.
                 2019, PipeDream; here without stale weights)
    interleaved  1f1b with CHUNKS chunks on each stage (Narayanan et al. 2021, arXiv 2104.04473)
    zero-bubble  1f1b with the backward pass in two: what the stage before waits for, and the
                 gradients of weights, which fill the gaps (ZB-H1 of Qi et al. 2023, arXiv
                 2401.10241)

Parts of a chunk go backward in order, so that gradients are added up in the same order whatever the
schedule is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe", "zero-bubble", "interleaved")  # simplest first
CHUNKS = 2  # of layers on each stage of an interleaved schedule

# forward; the whole backward pass; its part for inputs and its part for weights
Kind = Literal["forward", "backward", "inputs", "weights"]
KINDS: tuple[Kind, ...] = ("forward", "backward", "inputs", "weights")


class Action(NamedTuple):
    """Something that a stage does for one part of the batch."""

    kind: Kind
    chunk: int
    part: int


Table = tuple[tuple[Action, ...], ...]  # for each stage


def chunks_of(schedule: Schedule) -> int:
    """How many chunks each stage has."""
    return CHUNKS if schedule == "interleaved" else 1


def table(schedule: Schedule, stages: int, parts: int) -> Table:
    """What each stage does with `parts` parts of a batch, in order. An interleaved schedule needs a
    multiple of `stages` parts."""
    if schedule == "interleaved":
        if parts % stages:
            raise ValueError(f"{parts} parts are not a multiple of {stages} stages")
        return tuple(_interleaved(stage, stages, parts) for stage in range(stages))
    of_stage = {"gpipe": _gpipe, "1f1b": _one_by_one, "zero-bubble": _zero_bubble}[schedule]
    return tuple(of_stage(stage, stages, parts) for stage in range(stages))


def _gpipe(stage: int, _: int, parts: int) -> tuple[Action, ...]:
    return (
        *(Action("forward", stage, part) for part in range(parts)),
        *(Action("backward", stage, part) for part in range(parts)),
    )


def _one_by_one(stage: int, stages: int, parts: int) -> tuple[Action, ...]:
    forward = [Action("forward", stage, part) for part in range(parts)]
    backward = [Action("backward", stage, part) for part in range(parts)]
    return _alternating(forward, backward, stages - stage - 1)


def _alternating(
    forward: Sequence[Action], backward: Sequence[Action], ahead: int
) -> tuple[Action, ...]:
    """`ahead` forwards, then a forward and a backward in turns, then the other backwards."""
    pairs = zip(forward[ahead:], backward, strict=False)
    turns = [action for pair in pairs for action in pair]
    return (*forward[:ahead], *turns, *backward[max(0, len(forward) - ahead) :])


def _interleaved(stage: int, stages: int, parts: int) -> tuple[Action, ...]:
    """Groups of `stages` parts go through one chunk of each stage after the other."""

    def order(kind: Kind, chunks: Sequence[int]) -> list[Action]:
        return [
            Action(kind, chunk * stages + stage, group + part)
            for group in range(0, parts, stages)
            for chunk in chunks
            for part in range(stages)
        ]

    chunks = range(CHUNKS)
    ahead = 2 * (stages - stage - 1) + (CHUNKS - 1) * stages
    return _alternating(order("forward", chunks), order("backward", chunks[::-1]), ahead)


def _zero_bubble(stage: int, stages: int, parts: int) -> tuple[Action, ...]:
    """As 1f1b, but stage s computes the gradients of weights s parts later."""
    found = []
    for action in _one_by_one(stage, stages, parts):
        if action.kind == "forward":
            found.append(action)
            continue
        found.append(Action("inputs", stage, action.part))
        if action.part >= stage:
            found.append(Action("weights", stage, action.part - stage))
    return (*found, *(Action("weights", stage, p) for p in range(max(0, parts - stage), parts)))


def one_part(schedule: Schedule, stages: int) -> Table:
    """What each stage does with a single part, whatever the schedule: to measure its times."""
    halves: tuple[Kind, ...] = ("backward",)
    if schedule == "zero-bubble":
        halves = "inputs", "weights"

    def row(stage: int) -> tuple[Action, ...]:
        chunks = range(stage, stages * chunks_of(schedule), stages)
        back = (Action(kind, chunk, 0) for chunk in chunks[::-1] for kind in halves)
        return (*(Action("forward", chunk, 0) for chunk in chunks), *back)

    return tuple(map(row, range(stages)))


# ── Simulation ───────────────────────────────────────────────────────────────────────────────


class Span(NamedTuple):
    """When a stage does something, in seconds."""

    action: Action
    start: float
    end: float


class Times(NamedTuple):
    """Seconds that a chunk takes for one part, by kind; until a result is on another stage; and
    from the end of one action of a stage to the start of its next."""

    of_chunk: Sequence[Mapping[Kind, float]]
    transport: float = 0.0
    between: float = 0.0

    @staticmethod
    def alike(
        chunks: int, transport: float = 0.0, between: float = 0.0, **seconds: float
    ) -> "Times":
        """All chunks take as long: `forward`, `inputs` and `weights`, and both for `backward`."""
        both = seconds["inputs"] + seconds["weights"]
        each: dict[Kind, float] = {
            "forward": seconds["forward"],
            "inputs": seconds["inputs"],
            "weights": seconds["weights"],
            "backward": both,
        }
        return Times([each] * chunks, transport, between)


class Simulated(NamedTuple):
    """What a schedule is expected to do."""

    spans: tuple[tuple[Span, ...], ...]  # of each stage
    seconds: float  # from the first action to the last
    bubble: float  # the fraction of all stages' time in which they wait
    peaks: tuple[int, ...]  # of each stage: the most parts of a chunk whose activations it keeps


def simulate(of: Table, times: Times) -> Simulated:
    """Every stage does its actions in order, each as soon as its inputs are there. Sending takes
    time and nobody's attention. Raises ValueError if stages wait for each other forever."""
    ends: dict[Action, float] = {}
    spans: list[list[Span]] = [[] for _ in of]
    chunks = 1 + max(action.chunk for row in of for action in row)
    moved = True
    while moved:
        moved = False
        for stage, row in enumerate(of):
            while len(spans[stage]) < len(row):
                action = row[len(spans[stage])]
                needed = needs(action, chunks)
                if any(one not in ends for one in needed):
                    break
                there = [
                    ends[one] + times.transport * (one.chunk % len(of) != stage) for one in needed
                ]
                free = spans[stage][-1].end + times.between if spans[stage] else 0.0
                start = max([free, *there])
                ends[action] = end = start + times.of_chunk[action.chunk][action.kind]
                if action.kind == "inputs":  # the stage before waits for this as for a backward
                    ends[action._replace(kind="backward")] = end
                spans[stage].append(Span(action, start, end))
                moved = True
    if any(len(done) < len(row) for done, row in zip(spans, of, strict=True)):
        raise ValueError("the stages of this schedule wait for each other")
    return summed(spans)


def needs(action: Action, chunks: int) -> list[Action]:
    """What must be done before, anywhere; a backward may be only its part for inputs."""
    found = []
    if action.kind == "forward" and action.chunk:
        found.append(action._replace(chunk=action.chunk - 1))
    if action.kind in ("backward", "inputs"):
        found.append(action._replace(kind="forward"))
        if action.chunk < chunks - 1:
            found.append(Action("backward", action.chunk + 1, action.part))
    if action.kind == "weights":
        found.append(action._replace(kind="inputs"))
    return found


def summed(spans: Sequence[Sequence[Span]]) -> Simulated:
    """The same figures of spans that were simulated or measured."""
    first = min(row[0].start for row in spans)
    seconds = max(row[-1].end for row in spans) - first
    busy = sum(span.end - span.start for row in spans for span in row)
    peaks = []
    for row in spans:
        now = most = 0
        for span in row:
            now += span.action.kind == "forward"
            most = max(most, now)
            now -= span.action.kind in ("backward", "weights")
        peaks.append(most)
    bubble = 1 - busy / (len(spans) * seconds)
    return Simulated(tuple(map(tuple, spans)), seconds, bubble, tuple(peaks))


def together(of: Table, held: Sequence[int]) -> list[Action]:
    """The actions of these stages in one order, in which each comes after what it needs: what a
    process does that holds several stages."""
    chunks = 1 + max(action.chunk for row in of for action in row)
    found = simulate(of, Times.alike(chunks, forward=1.0, inputs=1.0, weights=1.0))
    mine = sorted((span.start, stage, span.action) for stage in held for span in found.spans[stage])
    return [action for *_, action in mine]


def fastest(
    candidates: Sequence[Schedule], stages: int, parts: int, times: Callable[[Schedule], Times]
) -> dict[Schedule, Simulated]:
    """All of these schedules simulated, the fastest first; of those within a hundredth of it, the
    simplest."""
    found = {one: simulate(table(one, stages, parts), times(one)) for one in candidates}
    least = min(one.seconds for one in found.values())

    def rank(name: Schedule) -> tuple[bool, float]:
        close = found[name].seconds <= 1.01 * least
        return not close, SCHEDULES.index(name) if close else found[name].seconds

    return {name: found[name] for name in sorted(found, key=rank)}
