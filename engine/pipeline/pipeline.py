"""A step of training through the stages of a model. A process works on the stages whose devices it
has, action by action of the schedule's table; stages in other processes do the same with theirs."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from engine.config.schedules import (
    KINDS,
    Action,
    Schedule,
    Span,
    Table,
    Times,
    chunks_of,
    one_part,
    table,
    together,
)
from engine.config.schema import TrainConfig
from engine.config.stages import Layout
from engine.model import mesh as meshes
from engine.model.decoder import Decoder, Params
from engine.model.loss import cross_entropy
from engine.pipeline.links import Links
from engine.pipeline.programs import Early, Late, Stage, programs
from engine.pipeline.split import Values
from engine.pipeline.whole import Whole
from engine.training import optim
from engine.training import step as training_step
from engine.training.step import Figures, State

MOST_PARTS = 2**16  # of a batch, for numbers that name what is sent


class Given(NamedTuple):
    """A batch on one stage, part by part: what the stage needs of it."""

    rows: int  # of a part
    inputs: Sequence[jax.Array] = ()  # on the first stage
    targets: Sequence[jax.Array] = ()  # on the last
    segments: Sequence[jax.Array | None] = ()  # on all; None: no documents share a row


@dataclass
class Pass:
    """Both passes of a batch through the stages that are here; by stage, or by chunk and part."""

    given: Mapping[int, Given]
    params: dict[int, list[Params]]  # as its chunks use them
    sums: dict[int, list[Params]]  # of the gradients of all parts
    losses: dict[int, list[jax.Array]]  # each part's share of the mean loss
    scored: jax.Array | None = None  # targets, on the last stage
    kept: dict[tuple[int, int], Values] = field(default_factory=dict)
    spans: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    peaks: Counter[int] = field(default_factory=Counter)  # as `Simulated.peaks`


class Pipeline:
    """The stages of a model. All processes call its methods together."""

    def __init__(
        self,
        decoder: Decoder,
        config: TrainConfig,
        stages: int,
        schedule: Schedule,
        seq_len: int,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        """`decoder.compute.mesh` is the mesh inside of a stage; stages take the devices in order.
        Raises BadMesh."""
        devices = jax.devices() if devices is None else devices
        each = decoder.compute.mesh.devices
        if len(devices) != each * stages:
            raise meshes.BadMesh(
                f"{stages} stages of {each} devices are {each * stages} devices, and there are "
                f"{len(devices)}; make pipeline × the other axes as many"
            )
        self.schedule: Schedule = schedule
        self._parts = config.gradient_accumulation_steps
        self._layout = layout = Layout(decoder.config, stages, chunks_of(schedule))
        recipe = training_step.recipe(decoder, config, cross_entropy)
        on = [
            meshes.make(decoder.compute.mesh, devices[stage * each : (stage + 1) * each])
            for stage in range(stages)
        ]
        self.stages = [
            Stage(layout, number, recipe, mesh, seq_len) for number, mesh in enumerate(on)
        ]
        self.here = {stage.number: stage for stage in self.stages if stage.is_here}
        self._recipe, self._seq_len = recipe, seq_len
        self._links, self._turn = Links(on), 0
        # A CPU would compute whatever is ready, in any order. Others compute in order, and only
        # devices that are waited for can be measured.
        self._waits = devices[0].platform == "cpu"
        with jax.set_mesh(on[0]):
            self._dtype = decoder.dtype

    @cached_property
    def whole(self) -> Whole:
        """All stages together."""
        return Whole(self._recipe, self.stages)

    def step(
        self, states: Mapping[int, State], given: Mapping[int, Given], rates: optim.Rates
    ) -> tuple[dict[int, State], Figures]:
        """The states of the stages that are here, updated (the old ones are overwritten), and the
        figures of all stages."""
        through = self.gradients(states, given)
        through.params.clear()  # copies that the update does not need
        totals = self.whole.total(
            {
                number: stage.norms(
                    states[number].params, through.sums[number], through.losses[number]
                )
                for number, stage in self.here.items()
            }
        )
        new = {
            number: stage.update(states[number], through.sums[number], totals[number], rates)
            for number, stage in self.here.items()
        }
        return {number: state for number, (state, _) in new.items()}, next(iter(new.values()))[1]

    def gradients(
        self, states: Mapping[int, State], given: Mapping[int, Given], by: Table | None = None
    ) -> Pass:
        """Both passes of a batch; `by` takes the place of the schedule's table."""
        through = Pass(
            given,
            {number: self.here[number].prepare(of.params) for number, of in states.items()},
            {number: self.here[number].zeros() for number in states},
            {number: [] for number in states},
        )
        if (last := len(self.stages) - 1) in self.here:
            through.scored = self.here[last].scored(given[last].targets)
        self._turn += 1
        by = by or table(self.schedule, len(self.stages), self._parts)
        order = together(by, sorted(self.here))
        for at, action in enumerate(order):
            for coming in order[at : at + 2]:  # the next input comes while this one is worked on
                self._pulled(coming, through, begin=True)
            self._act(action, through)
        if self._waits:
            # Everybody has what was sent. A sum over processes can take all threads of a CPU, and
            # then nobody sends: of two processes, one would wait for its last input for ever.
            self._links.meet()
        return through

    def _act(self, action: Action, through: Pass) -> None:
        kind, chunk, part = action
        stage, place = chunk % len(self.stages), chunk // len(self.stages)
        here, params, sums = through.given[stage], through.params[stage], through.sums[stage]
        key, kept, owner = (chunk, part), through.kept, self.stages[stage]
        of = programs(owner.chunks[chunk], owner.mesh, here.rows, here.segments[0] is not None)
        x = self._pulled(action, through)
        early = Early(here.inputs[part] if chunk == 0 else x, here.segments[part])
        late = Late(x)
        if chunk == self._chunks - 1:
            late = Late(None, here.targets[part], through.scored)
        if self._waits:
            jax.block_until_ready((early, late))
        start = time.monotonic()
        sent = None
        if kind == "forward":
            sent, kept[key] = of.forward(params[place], early)
            held = sum(one % len(self.stages) == stage for one, _ in kept)
            through.peaks[stage] = max(through.peaks[stage], held)
        elif kind == "weights":
            sums[place] = of.weights(params[place], kept.pop(key), sums[place])
        elif kind == "inputs":
            (sent, loss), passed = of.inputs(params[place], kept[key], late)
            kept[key] = of.split.needed_late(kept[key], passed)
        else:
            (sent, loss), sums[place] = of.backward(params[place], kept.pop(key), late, sums[place])
        if kind in ("inputs", "backward") and chunk == self._chunks - 1:
            through.losses[stage].append(loss)
        if self._waits:
            jax.block_until_ready((sent, sums[place], kept.get(key)))
            through.spans[stage].append(Span(action, start, time.monotonic()))
        to = chunk + (1 if kind == "forward" else -1)
        if sent is not None and 0 <= to < self._chunks:
            self._links.send(sent, to % len(self.stages), self._tag(action._replace(chunk=to)))

    @property
    def _chunks(self) -> int:
        return len(self.stages) * self._layout.chunks

    def _tag(self, action: Action) -> int:
        """The number of what an action gets from another stage."""
        of_turn = 2 * action.chunk + (action.kind == "forward")
        return (self._turn * 2 * self._chunks + of_turn) * MOST_PARTS + action.part

    def _pulled(self, action: Action, through: Pass, *, begin: bool = False) -> Any:
        """What an action gets from another stage, if anything; `begin` only asks for it."""
        chunk = action.chunk
        of = {"forward": chunk - 1, "weights": -1}.get(action.kind, chunk + 1)
        if not 0 <= of < self._chunks:
            return None
        on, from_, tag = chunk % len(self.stages), of % len(self.stages), self._tag(action)
        like = self._activations(through.given[on])
        if begin:
            return self._links.expect(like, on, from_, tag)
        return self._links.receive(like, on, from_, tag)

    def _activations(self, given: Given) -> jax.ShapeDtypeStruct:
        shape = given.rows * self._seq_len, self._layout.model.hidden_dim
        return jax.ShapeDtypeStruct(shape, self._dtype)

    # ── Figures of a stage ──

    def measured(self, states: Mapping[int, State], given: Mapping[int, Given]) -> Times:
        """Compile all programs, and measure them with one part of a batch."""
        waits, self._waits = self._waits, True
        by = one_part(self.schedule, len(self.stages))
        for _ in range(2):  # the first time compiles
            spans = self.gradients(states, given, by).spans
        self._waits = waits
        found = np.zeros((self._chunks + 1, len(KINDS)), np.float32)
        for action, start, end in (span for of in spans.values() for span in of):
            found[action.chunk, KINDS.index(action.kind)] = end - start
        for stage, chunk, place in ((0, 0, 0), (len(self.stages) - 1, self._chunks - 1, 1)):
            if stage in spans:  # the first chunk waits for all others, and the last for nobody
                forth, back = [x for x in spans[stage] if x.action.chunk == chunk][:2]
                found[-1, place] = back.start - forth.end
        if jax.process_count() > 1:
            found = np.asarray(multihost_utils.process_allgather(found)).max(axis=0)
        of_chunk = [dict(zip(KINDS, map(float, of), strict=True)) for of in found[:-1]]
        for of in of_chunk:  # a program for both, or two
            of["backward"] = of["backward"] or of["inputs"] + of["weights"]
            of["inputs"] = of["inputs"] or of["backward"]
        others = sum(of["forward"] + of["inputs"] for of in of_chunk[1:])
        waits, between = map(float, found[-1, :2])
        transport = max(0.0, waits - others - between) / (2 * self._chunks - 2)
        return Times(of_chunk, transport, between)
