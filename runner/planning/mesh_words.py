"""What a plan says of its devices: the mesh and the reason for it, what a device holds, which
utilisation is assumed and why, and a price that is missing. Pure."""

from collections.abc import Collection, Iterator

from engine.config import flops, memory, mesh_choice, stage_choice
from engine.config.mesh_choice import Chosen
from engine.config.schema import MeshConfig, ModelConfig
from engine.config.stages import StagedCompute
from runner.lib.format import dollars, duration, first_of, many, percent
from runner.schema.devices import SLICES_WITHIN, UTILISATION, Slice
from runner.schema.lab_config import DEVICES
from runner.schema.record import Plan, PlannedArm

MOST = 4  # meshes of one plan that are described
ONE = MeshConfig()


def told(plan: Plan, in_table: bool = False) -> list[str]:
    """Sentences about the devices of the plan's training; empty for single cores. What a device
    holds is left out if it is `in_table`."""
    groups = computed(plan)
    found: list[str] = []
    for (on, compute), arms in [*groups.items()][:MOST]:
        of = f" of {first_of([*arms], 3)}" if len(groups) > 1 else ""
        found += _of_group(on, compute, arms.values(), of, in_table)
    if len(groups) > MOST:
        found.append(f"{len(groups) - MOST} more meshes are in the configurations of the steps")
    return [*found, *_of_slices(plan), *_of_spot(plan), *_without_price(plan)]


def computed(plan: Plan) -> dict[tuple[Slice, StagedCompute], dict[str, PlannedArm]]:
    """The arms with models of the lab, by devices and by how they are computed there."""
    found: dict[tuple[Slice, StagedCompute], dict[str, PlannedArm]] = {}
    for (arm, _), name in plan.trained().items():
        step = plan.steps[name]
        if plan.arms[arm].labs is None or step.resources.kind not in plan.kinds:
            continue
        of = step.resources
        compute = StagedCompute.model_validate(step.config.get("compute", {}))
        key = Slice(of.kind, of.count, plan.kinds[of.kind], of.slices), compute
        found.setdefault(key, {})[arm] = plan.arms[arm]
    return found


def _of_group(
    on: Slice, compute: StagedCompute, arms: Collection[PlannedArm], of: str, in_table: bool
) -> Iterator[str]:
    kind = on.device
    if kind.platform == "cpu" and on.count == 1:
        return

    def held(arm: PlannedArm) -> memory.Footprint:
        return stage_choice.held(_labs(arm), arm.train, compute, kind.platform)

    largest = max(arms, key=lambda arm: held(arm).total)
    inside = compute.inside.mesh
    if inside.devices > 1 or compute.remat != "none":
        sizes = " × ".join(f"{axis} {size}" for axis, size in inside if size > 1)
        sizes = sizes or "one device"
        sizes += " in each stage" if compute.mesh.pipeline > 1 else ""
        sizes += f" with `remat: {compute.remat}`" if compute.remat != "none" else ""
        chosen = _chosen(on, compute, largest)
        yield f"Mesh{of} on {on}: {sizes}, {f'chosen: {chosen.why}' if chosen else 'as declared'}"
    if compute.mesh.pipeline > 1:
        yield from _pipeline(on, compute, largest, of)
    if kind.memory and not in_table:
        yield _held(held(largest), of, on, compute, largest)
    if kind.platform != "cpu":
        yield _utilisation(largest, of, on, compute)


def _pipeline(on: Slice, compute: StagedCompute, arm: PlannedArm, of: str) -> Iterator[str]:
    """The stages, their schedule and why, the bubble to expect, and what each stage holds."""
    model, train, count = _labs(arm), arm.train, compute.mesh.pipeline
    given = model, train, compute.model_copy(update={"schedule": None})
    expected = stage_choice.choose(*given, on.device.hardware(on.count), on.device.peak_flops)
    if expected.compute.schedule != compute.schedule:
        given = model, train, compute
        expected = stage_choice.choose(*given, on.device.hardware(on.count), on.device.peak_flops)
    layers, bubble = model.num_layers // count, expected.expected.bubble
    parts = train.gradient_accumulation_steps
    words = (
        f"Pipeline{of}: {count} stages of {many(layers, 'layer')}, schedule {compute.schedule}, "
        f"{expected.why}. Expected bubble: stages wait {percent(bubble)} of a step of "
        f"{many(parts, 'part')}, by FLOPs and not measured"
    )
    if bubble > stage_choice.SHORT:
        words += "; more `gradient_accumulation_steps` make it shorter"
    yield words
    held = stage_choice.footprints(model, train, compute, on.device.platform)
    parts_of = ", ".join(
        f"stage {number} {memory.size(one.total)} ({memory.size(one.activations)} activations)"
        for number, one in enumerate(held)
    )
    yield f"Memory by stage{of}, of a device, by formula: {parts_of}"


def _held(
    needs: memory.Footprint, of: str, on: Slice, compute: StagedCompute, arm: PlannedArm
) -> str:
    """What each device holds, of its memory; if that is too much, what fits."""
    has = on.device.memory or 0
    parts = ", ".join(f"{memory.size(part)} {name}" for name, part in needs._asdict().items())
    words = (
        f"Memory{of}, by formula: {memory.size(needs.total)} on each device, "
        f"{percent(needs.total / has)} of its {memory.size(has)} ({parts})"
    )
    if needs.total <= (room := memory.USABLE * has):
        return words
    given = _labs(arm), arm.train, compute, on.device.platform, room
    fitting = stage_choice.choices(*given) or "no batch does; make the model smaller"
    return f"{words}. That does not fit; what fits: {fitting}"


def _utilisation(arm: PlannedArm, of: str, on: Slice, compute: StagedCompute) -> str:
    """The assumed MFU, and what the mesh's traffic makes of it."""
    kind, (good, poor) = on.device, UTILISATION
    tokens = max(arm.train.batch_sizes.sizes) * _labs(arm).seq_len
    seconds = flops.model_flops(_labs(arm), tokens) / kind.peak_flops / on.count / good
    words = (
        f"MFU{of} assumed: {percent(good)} (as good public runs) to {percent(poor)} (a poor run). "
        f"At {percent(good)} a step of {tokens:,} tokens computes for {_short(seconds)}"
    )
    if on.count == 1 or compute.mesh.pipeline > 1:
        return words
    sent = mesh_choice.traffic(_labs(arm), arm.train, compute, on.hardware)
    exposed = good * seconds / (seconds + sent.seconds)
    words += (
        f", and a device sends {memory.size(sent.bytes)} in {_short(sent.seconds)}: if nothing is "
        f"computed meanwhile, MFU is {percent(exposed)}"
    )
    more = "; a larger batch, or fewer devices, would send less for each token"
    return words + (more if exposed < poor else "")


def _labs(arm: PlannedArm) -> ModelConfig:
    """Its model, which `computed` has checked is the lab's."""
    assert arm.labs
    return arm.labs


def _chosen(on: Slice, compute: StagedCompute, arm: PlannedArm) -> Chosen | None:
    """The choice that these computations are; None if they are another one."""
    hardware, inside = on.hardware, compute.inside
    for remat, may_remat in (("none", True), (compute.remat, False)):
        open_ = compute.with_inside(inside.model_copy(update={"mesh": ONE, "remat": remat}))
        found = stage_choice.choose_inside(_labs(arm), arm.train, open_, hardware, may_remat)
        if found and found.compute == inside:
            return found
    return None


def _of_slices(plan: Plan) -> Iterator[str]:
    """With how many slices a run may continue, and what each device then holds."""
    trained = (plan.steps[name].resources for name in plan.trained().values())
    for slices, least in dict.fromkeys((of.slices, of.min_slices) for of in trained):
        if least and least < slices:
            words = (
                f"If slices are lost and not replaced within {SLICES_WITHIN // 60:.0f} minutes, it "
                f"continues with at least {least} of {slices}: the same batch, in "
                f"{slices // least} parts one after the other"
            )
            if found := _with_fewest(plan, slices, least):
                holds, has = found
                words += f". Each device then holds {memory.size(holds)} of its {memory.size(has)}"
                if holds > memory.USABLE * has:
                    words += ", which does not fit: leave `min_slices` out, or make it larger"
            yield words


def _with_fewest(plan: Plan, slices: int, least: int) -> tuple[float, float] | None:
    """The most bytes that a device holds with so few of its slices, and the bytes that it has."""
    found = []
    for (on, compute), arms in computed(plan).items():
        if not on.device.memory or on.slices != slices:
            continue
        data = compute.mesh.data * least // slices
        fewer = compute.model_copy(update={"mesh": compute.mesh.model_copy(update={"data": data})})
        for arm in arms.values():
            parts = arm.train.gradient_accumulation_steps * slices // least
            train = arm.train.model_copy(update={"gradient_accumulation_steps": parts})
            held = stage_choice.held(_labs(arm), train, fewer, on.device.platform)
            found.append((held.total, on.device.memory))
    return max(found, default=None)


def _of_spot(plan: Plan) -> Iterator[str]:
    """The most that a preemption costs: the training between two checkpoints."""
    most: tuple[float, str] | None = None
    for (arm, _), name in plan.trained().items():
        on, planned = plan.steps[name].resources, plan.arms[arm]
        if not on.spot or on.kind not in plan.kinds:
            continue
        kind, train = plan.kinds[on.kind], planned.train
        steps = min(train.checkpoint_every, train.evaluate_every or train.checkpoint_every)
        words = f"at most {many(steps, 'step')} of each run (of {train.num_train_steps:,})"
        seconds = 0.0
        if planned.model_flops is not None:
            seconds = planned.model_flops * steps / train.num_train_steps
            seconds /= kind.peak_flops * on.count * UTILISATION[1]
            words += f", about {_short(seconds)}"
            if price := kind.price_of(on.spot):
                words += f" and {dollars(seconds * on.count * price / 3600)}"
        most = max(most or (seconds, words), (seconds, words))
    if most:
        yield (
            "Spot devices may be taken away. Each time, the lab does again what came after the "
            f"last checkpoint: {most[1]}, and the start. It continues until the time limit"
        )


def _without_price(plan: Plan) -> Iterator[str]:
    trained = (plan.steps[name].resources for name in plan.trained().values())
    for name, spot in dict.fromkeys((of.kind, of.spot) for of in trained):
        kind = plan.kinds.get(name)
        if kind and kind.platform != "cpu" and kind.price_of(spot) is None:
            yield (
                f"The price is unknown, because the lab has none for `{name}`; write `price` (US$ "
                f"an hour and device) below `{name}` in `{DEVICES}`"
            )


def _short(seconds: float) -> str:
    """`40 ms`, `1.3 s` or `2 min 5 s`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
