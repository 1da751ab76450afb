"""What training will cost: FLOPs by formula, and the hardware FLOPs, seconds and price that follow
at good and at poor utilisation. What other steps take is not known beforehand."""

from collections.abc import Collection, Mapping
from typing import Any

from engine.config import flops
from engine.config.schema import ModelConfig, TrainConfig
from runner.schema.devices import KINDS, UTILISATION
from runner.schema.record import Cost, Plan, PlannedArm, Resources, Standing


def arm_of(model: ModelConfig, train: TrainConfig) -> PlannedArm:
    """A model and how it is trained, counted."""
    seen = train.num_train_steps * train.train_batch_size * model.seq_len
    return PlannedArm(
        model=model,
        train=train,
        parameters=flops.parameters(model),
        tokens=seen,
        forward_flops_per_token=flops.forward_flops_per_token(model),
        model_flops=flops.model_flops(model, seen),
    )


def training(plan: Plan) -> dict[str, PlannedArm | None]:
    """{`train` step: what it trains}; None where its model is the experiment's own, whose FLOPs are
    not known beforehand."""
    found: dict[str, PlannedArm | None] = {}
    for name, step in plan.steps.items():
        if step.do != "train":
            continue
        if run := plan.arm_of(name):
            found[name] = plan.arms[run[0]]
        elif "model" in step.config["own"]:
            found[name] = None
        else:
            model = ModelConfig.model_validate(step.config["model"])
            found[name] = arm_of(model, TrainConfig.model_validate(step.config["train"]))
    return found


def left(plan: Plan, stands: Mapping[str, Standing]) -> Cost:
    """What it costs to make what is not cached. What is being made counts: whoever makes it may
    have been lost."""
    cached = {name for name, one in stands.items() if one.state == "cached"}
    if not cached:
        return plan.cost
    trained = {name: arm for name, arm in training(plan).items() if name not in cached}
    if any(plan.steps[name].resources.kind not in KINDS for name in trained):
        return plan.cost  # of a kind that the lab had then
    return cost(
        [(plan.steps[name].resources, arm) for name, arm in trained.items() if arm],
        [tokens(plan.steps[name].config) for name, arm in trained.items() if arm is None],
        plan.resources,
    )


def cost(
    runs: Collection[tuple[Resources, PlannedArm]], uncounted: list[int], default: Resources
) -> Cost:
    """The cost of runs on their devices, and of those besides of which only the tokens are known;
    `default` are the devices that are named where there are no others."""
    flops_on: dict[tuple[str, int], int] = {}
    for on, arm in runs:
        key = (on.kind, on.count)
        flops_on[key] = flops_on.get(key, 0) + arm.model_flops
    if not flops_on:
        flops_on[default.kind, default.count] = 0
    flops_on = dict(sorted(flops_on.items()))
    least, most = UTILISATION
    seconds, price, devices = (0.0, 0.0), (0.0, 0.0), dict[str, tuple[float, float]]()
    for (name, count), model_flops in flops_on.items():
        kind, before = KINDS[name], devices.get(name, (0.0, 0.0))
        of_all = [model_flops / share / kind.peak_flops for share in (least, most)]
        devices[name] = (before[0] + of_all[0], before[1] + of_all[1])
        seconds = (seconds[0] + of_all[0] / count, seconds[1] + of_all[1] / count)
        dollars = (kind.price or 0.0) / 3600
        price = (price[0] + of_all[0] * dollars, price[1] + of_all[1] * dollars)
    whole = sum(flops_on.values())
    return Cost(
        runs=len(runs) + len(uncounted),
        uncounted=len(uncounted),
        tokens=sum(arm.tokens for _, arm in runs) + sum(uncounted),
        model_flops=whole,
        hardware_flops=(whole / least, whole / most),
        seconds=seconds,
        price=price if any(KINDS[name].price for name in devices) else None,
        device=" and ".join(f"{n} × {KINDS[name].description}" for name, n in flops_on),
        device_seconds=devices,
    )


def tokens(config: Mapping[str, Any]) -> int:
    """How many a `train` step sees."""
    train = config["train"]
    return int(train["num_train_steps"] * train["train_batch_size"] * config["model"]["seq_len"])
