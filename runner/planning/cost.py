"""The cost of training: FLOPs by formula, and hardware FLOPs, seconds and price at good and at poor
utilisation. The cost of other steps is not known in advance."""

from collections.abc import Collection, Mapping

from engine.config import flops
from engine.config.schema import ModelConfig, TrainConfig
from runner.schema import record
from runner.schema.devices import UTILISATION, Kind
from runner.schema.own_model import OwnModel
from runner.schema.record import Cost, Plan, PlannedArm, Resources, Standing


def arm_of(model: ModelConfig | OwnModel, train: TrainConfig, own: Mapping[str, str]) -> PlannedArm:
    """An arm from a model, its training and the `own` functions, with its costs."""
    seen = train.batch_sizes.until(train.num_train_steps) * model.seq_len
    labs = model if isinstance(model, ModelConfig) else None
    return PlannedArm(
        model=model,
        train=train,
        own=dict(own),
        parameters=flops.parameters(labs) if labs else None,
        tokens=seen,
        forward_flops_per_token=flops.forward_flops_per_token(labs) if labs else None,
        model_flops=flops.model_flops(labs, seen) if labs else None,
    )


def of(plan: Plan, but: Collection[str] = ()) -> Cost:
    """The cost of all training in the plan, without the steps in `but`, each on its devices; of
    searches for settings that of all trials that they may make."""
    runs = [
        (plan.steps[name].resources, plan.arms[arm])
        for (arm, _), name in plan.trained().items()
        if name not in but
    ]
    trials = list[tuple[Resources, PlannedArm, int]]()
    for name, step in plan.steps.items():
        arm = plan.arms.get(record.arm_named(name)) if step.do == "tune" else None
        if arm and name not in but:
            trials.append((step.resources, arm, step.config["search"]["trials"]))
    return cost(runs, plan.resources, plan.kinds, trials)


def left(plan: Plan, stands: Mapping[str, Standing]) -> Cost:
    """The cost of everything that is not cached. Steps that are running count, because their worker
    may be lost."""
    cached = {name for name, one in stands.items() if one.state == "cached"}
    if not cached:
        return plan.cost
    if any(step.resources.kind not in plan.kinds for step in plan.steps.values()):
        return plan.cost  # it may name kinds that no longer exist
    return of(plan, cached)


def cost(
    runs: Collection[tuple[Resources, PlannedArm]],
    default: Resources,
    kinds: Mapping[str, Kind],
    trials: Collection[tuple[Resources, PlannedArm, int]] = (),
) -> Cost:
    """The cost of runs and of so many trials, which are no runs, on their devices, of these kinds;
    for own models only the tokens are known. `default` are the devices to name if there are no
    runs."""
    flops_on: dict[tuple[str, int, bool], int] = {}
    trained = [*((on, arm, 1) for on, arm in runs), *trials]
    for on, arm, times in trained:
        if arm.model_flops is not None:
            key = (on.kind, on.count, on.spot)
            flops_on[key] = flops_on.get(key, 0) + times * arm.model_flops
    if not flops_on:
        flops_on[default.kind, default.count, default.spot] = 0
    flops_on = dict(sorted(flops_on.items()))
    least, most = UTILISATION
    seconds, price, devices = (0.0, 0.0), (0.0, 0.0), dict[str, tuple[float, float]]()
    for (name, count, spot), model_flops in flops_on.items():
        kind, before = kinds[name], devices.get(name, (0.0, 0.0))
        of_all = [model_flops / share / kind.peak_flops for share in (least, most)]
        devices[name] = (before[0] + of_all[0], before[1] + of_all[1])
        seconds = (seconds[0] + of_all[0] / count, seconds[1] + of_all[1] / count)
        dollars = (kind.price_of(spot) or 0.0) / 3600
        price = (price[0] + of_all[0] * dollars, price[1] + of_all[1] * dollars)
    whole = sum(flops_on.values())
    return Cost(
        runs=len(runs),
        uncounted=sum(arm.model_flops is None for _, arm in runs),
        tokens=sum(times * arm.tokens for _, arm, times in trained),
        model_flops=whole,
        hardware_flops=(whole / least, whole / most),
        seconds=seconds,
        price=price if any(kinds[name].price_of(spot) for name, _, spot in flops_on) else None,
        device=" and ".join(
            f"{n} × {kinds[name].description}{' (spot)' * spot}" for name, n, spot in flops_on
        ),
        device_seconds=devices,
    )
