"""Records made by hand, for tests that read records: small plans, runs and whole stores."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.config import flops
from engine.config.schema import EvalConfig, ModelConfig, TrainConfig
from runner.analysis import verdicts
from runner.lib import base_record
from runner.schema import lab_config, record, tracks
from runner.store import artifacts
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Store

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ADA = record.Person(login="ada", id=11)
GRACE = record.Person(login="grace", id=12)
REPOSITORY, REPOSITORY_NAME = 7, "regatta/lab"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def prediction(
    expect: str = "< -0.05",
    *,
    arm: str = "fast",
    versus: str | None = "slow",
    confidence: float = 0.8,
) -> record.Prediction:
    return record.Prediction(
        metric="eval/bpb", arm=arm, versus=versus, expect=expect, confidence=confidence
    )


def planned_arm(*, steps: int = 16, hidden_dim: int = 128, rate: float = 3e-3) -> record.PlannedArm:
    model = ModelConfig(
        hidden_dim=hidden_dim, intermediate_dim=352, num_layers=4, num_heads=4, seq_len=256
    )
    tokens = steps * 16 * model.seq_len
    return record.PlannedArm(
        model=model,
        train=TrainConfig(train_batch_size=16, num_train_steps=steps, learning_rate=rate),
        parameters=flops.parameters(model),
        tokens=tokens,
        forward_flops_per_token=flops.forward_flops_per_token(model),
        model_flops=flops.model_flops(model, tokens),
    )


def steps(
    arms: Mapping[str, record.PlannedArm], seeds: Sequence[int], eval_tokens: int, text: str
) -> dict[str, record.PlannedStep]:
    """The graph of arms and seeds."""
    sha256 = {split: sha(f"{split} {text}") for split in ("train", "validation")}
    tokenize = step("tokenize", 0, {"source": text, "tokenizer": "byte", "sha256": sha256}, {})
    found = {"tokenize": tokenize}
    tokens = {"tokens": {"tokenize": tokenize.fingerprint}}
    for arm, planned in arms.items():
        for seed in seeds:
            config = {
                "model": planned.model.model_dump(mode="json"),
                "train": planned.train.model_dump(mode="json"),
                "own": {},
                "seed": seed,
            }
            found[f"train/{arm},seed={seed}"] = step("train", len(found), config, tokens)
    models = {name: one.fingerprint for name, one in found.items() if one.do == "train"}
    config = {"tokens": eval_tokens}
    found["evaluate"] = step("evaluate", len(found), config, {"models": models, **tokens})
    return found


def step(
    do: str, turn: int, config: Mapping[str, Any], inputs: Mapping[str, Mapping[str, str]]
) -> record.PlannedStep:
    """A step of the lab's own."""
    given = {
        key: {x.partition("/")[2]: of for x, of in these.items()} for key, these in inputs.items()
    }
    return record.PlannedStep(
        do=do,
        function=f"regatta.{do}",
        config=dict(config),
        inputs={key: dict(these) for key, these in inputs.items()},
        code={"lab:code": sha(do)},
        resources=record.Resources(kind="cpu"),
        fingerprint=sha(json.dumps([do, config, given], sort_keys=True)),
        turn=turn,
        store=do,
    )


def plan(
    *,
    arms: Mapping[str, record.PlannedArm] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    predictions: Sequence[record.Prediction] = (),
    title: str = "Does a warmer learning rate pay off in 16 steps?",
    preregistration: int | None = None,
    text: str = "stdlib",
    eval_tokens: int = 16_384,
    experiment: str = "experiments/warm-rate",
) -> record.Plan:
    arms = dict(arms or {"slow": planned_arm(rate=3e-4), "fast": planned_arm()})
    tokens = sum(arm.tokens for arm in arms.values()) * len(seeds)
    model_flops = sum(arm.model_flops for arm in arms.values()) * len(seeds)
    return record.Plan(
        experiment=experiment,
        title=title,
        preregistration=preregistration,
        seal=sha("seal") if preregistration else None,
        predictions=tuple(predictions),
        data=record.PlannedData(
            source=text,
            tokenizer="byte",
            train_tokens=20_000_000,
            train_sha256=sha(f"train {text}"),
            validation_tokens=600_000,
            validation_sha256=sha(f"validation {text}"),
        ),
        eval=EvalConfig(tokens=eval_tokens),
        resources=record.Resources(kind="cpu"),
        seeds=tuple(seeds),
        arms=arms,
        steps=steps(arms, seeds, eval_tokens, text),
        cost=record.Cost(
            runs=len(arms) * len(seeds),
            tokens=tokens,
            model_flops=model_flops,
            hardware_flops=(model_flops / 0.5, model_flops / 0.2),
            seconds=(40.0, 100.0),
            price=None,
            device="1 × CPU, 2 cores",
        ),
        fingerprint=sha(f"plan {title} {sorted(arms)} {seeds}"),
    )


def run(
    of: record.Plan,
    arm: str,
    seed: int,
    bpb: float | None,
    *,
    execution: str = "x0123456789abcdef",
    curve: Sequence[tuple[int, float]] | None = None,
    state: str = "finished",
    why: str = "",
) -> record.Run:
    """A run that ended at `bpb` (None: it has no figure), with a curve that falls towards it."""
    planned = of.arms[arm]
    steps = planned.train.num_train_steps
    if curve is None:
        end, noise = (bpb or 4.0) * 0.693, random.Random(f"{arm} {seed}")
        curve = [
            (step, end + (5.6 - end) * 0.75 ** (step - 1) + noise.gauss(0, 0.03))
            for step in range(1, steps + 1)
        ]
    done = curve[-1][0] if curve else 0
    return record.Run(
        execution=execution,
        arm=arm,
        seed=seed,
        state=state,
        why=why,
        steps=done,
        tokens=done * planned.tokens // steps,
        model_flops=done * planned.model_flops // steps,
        evaluated=None
        if bpb is None
        else record.Evaluated(
            bpb=bpb,
            loss=bpb * 0.693,
            targets=of.eval.tokens,
            params_sha256=sha(f"{execution} {arm} {seed}"),
        ),
        checkpoint_sha256=None if bpb is None else sha(f"checkpoint {execution} {arm} {seed}"),
        curve=tuple(curve),
        tokens_per_second=9_000.0,
    )


def execution(
    of: record.Plan,
    name: str = "1",
    *,
    pull: int | None = 2,
    at: datetime = START,
    author: record.Person | None = ADA,
) -> record.Execution:
    """An execution approved by Grace on the pull request `pull` of `author`, or a local one."""
    origin = None
    if pull is not None:
        origin = record.Origin(
            repository=REPOSITORY,
            repository_name=REPOSITORY_NAME,
            pull=pull,
            plan=1,
            commit=sha(f"commit {name}")[:40],
            approved_by=GRACE,
            approval=f"{REPOSITORY}/{9000 + pull}-0",
            author=author,
        )
    return record.Execution(id=record.execution_id(name), at=at, plan=of, origin=origin)


def begin(store: Store, of: record.Execution, *events: str) -> None:
    """Record an execution, and of its attempts what `events` name (`t1.claimed`, …)."""
    folder = f"executions/{of.id}"
    record.write(store, f"{folder}/execution", of)
    for event in events:
        what: base_record.Record
        if event.endswith(".claimed"):
            what = record.Claimed(at=of.at, nonce="a" * 16, spec_sha256=sha(event))
        elif event.endswith(".started"):
            what = record.Started(at=of.at)
        else:
            what = record.Ended(
                at=of.at,
                how="finished",
                receipt={"jax": "0.10.2", "device": "cpu"} if event.startswith("t") else {},
            )
        record.write(store, f"{folder}/{event}", what)


def making(store: Store, execution: str, run: str, of: record.Plan | None = None) -> str:
    """Record that an execution has begun to train a run. Where its maker notes what it does."""
    arm, _, seed = run.rpartition(".s")
    trains = (of or plan()).steps[f"train/{arm},seed={seed}"]
    start = artifacts.Start(
        name=trains.store,
        fingerprint=trains.fingerprint,
        generation=1,
        maker="a" * 16,
        by=execution,
        host="vm",
    )
    store.create(f"leases/{start.lease}/start.json", start.canonical())
    return f"{start.folder}{SCRATCH}"


def finish(
    store: Store,
    of: record.Execution,
    figures: Mapping[tuple[str, int], float | None],
    *,
    state: str = "done",
    why: str = "",
    refused: Sequence[str] = (),
    lost: Sequence[record.Lost] = (),
    runs: Sequence[record.Run] | None = None,
) -> list[record.Run]:
    """Record an execution whole, with the runs and the verdicts that follow from `figures`."""
    begin(store, of, "t1.claimed", "t1.started", "t1.ended", "e1.claimed", "e1.ended")
    if runs is None:
        runs = [
            run(of.plan, arm, seed, figures.get((arm, seed)), execution=of.id)
            for arm, seed in of.plan.runs()
        ]
    for each in runs:
        record.write(store, f"runs/{of.id}.{record.run_name(each.arm, each.seed)}", each)
    judged = verdicts.judge(of.plan, {"eval/bpb": figures}) if state in ("done", "failed") else ()
    result = record.Result(
        at=of.at + timedelta(seconds=71),
        state=state,
        why=why,
        verdicts=judged,
        refused=tuple(refused),
        lost=tuple(lost),
        seconds=71.0,
    )
    record.write(store, f"executions/{of.id}/result", result)
    return list(runs)


def preregister(
    store: Store,
    issue: int,
    *,
    title: str = "A warmer learning rate pays off in 16 steps",
    hypothesis: str = "Ten times the rate learns more from 65,536 tokens.",
    predictions: Sequence[record.Prediction] = (),
    edits: int = 0,
    author: record.Person = ADA,
    at: datetime = START - timedelta(hours=1),
) -> record.Preregistration:
    """Seal an issue, and record `edits` later edits of it."""
    seal = record.Preregistration(
        repository=REPOSITORY,
        issue=issue,
        title=title,
        hypothesis=hypothesis,
        predictions=tuple(predictions) or (prediction(),),
        author=author,
        at=at,
        text_sha256=sha(f"body {title}"),
    )
    folder = f"preregistrations/{REPOSITORY}/{issue}"
    record.write(store, f"{folder}/1", seal)
    for n in range(edits):
        edit = record.Edit(at=START + timedelta(hours=n), text_sha256=sha(f"edit {n}"))
        record.write(store, f"{folder}/{n + 2}", edit)
    return seal


def figures(
    slow: Sequence[float | None], fast: Sequence[float | None]
) -> dict[tuple[str, int], float | None]:
    """Figures of the arms `slow` and `fast`, by seed."""
    return {
        (arm, seed): value
        for arm, values in (("slow", slow), ("fast", fast))
        for seed, value in enumerate(values)
    }


PLAIN = figures([3.41, 3.47, 3.38], [2.58, 2.66, 2.62])


NAMES = ("ada", "bo", "cy", "dora", "eve", "finn", "robo-7")
TITLES = (
    "is a larger batch worth its tokens?",
    "does weight decay matter in short runs?",
    "how long should the rate warm up?",
)


def board(store: Store, executions: int, *, seed: int = 0, asked: bool = False) -> None:
    """Fill a store with experiments of two arms and three seeds, each of one finished execution;
    with `asked`, each has a preregistration."""
    rng = random.Random(seed)
    for n in range(executions):
        at = START + timedelta(hours=7 * n)
        author = record.Person(login=NAMES[n % len(NAMES)], id=20 + n % len(NAMES))
        told = [prediction(confidence=0.5 + n % 5 / 10), prediction("2.6 ± 0.1", versus=None)]
        title = f"Question {n}: {TITLES[n % len(TITLES)]}"
        seal = None
        if asked:
            when = {"author": author, "at": at - timedelta(hours=2)}
            seal = preregister(store, 1000 + n, title=title, predictions=told, **when)
        rate = 3e-3 + n * 1e-9 * asked  # each asks about runs that nobody has seen
        of = plan(
            title=title,
            arms={"slow": planned_arm(rate=rate / 10), "fast": planned_arm(rate=rate)},
            experiment=f"experiments/q{n}",
            predictions=told,
            preregistration=seal.issue if seal else None,
            text=("stdlib", "wiki")[n % 5 == 0],
        )
        of = of.model_copy(update={"seal": seal.seal}) if seal else of
        level = rng.uniform(2.2, 3.6)
        finish(
            store,
            execution(of, str(n), pull=n + 1, at=at, author=author),
            figures(
                [level + 0.4 + rng.gauss(0, 0.03) for _ in range(3)],
                [level + rng.gauss(0, 0.03) for _ in range(3)],
            ),
        )


def create_at_once(self: Store, name: str, data: bytes, *, lasting: bool = True) -> bool:
    """Like `Store.create`, without waiting for the disk: a lab has thousands of records."""
    del lasting
    target = self.local(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.write_bytes(data)
    return True


def compete(
    store: Store,
    track: tracks.Track,
    name: str,
    values: Sequence[float],
    *,
    hardware_flops: float = 4e13,
    seconds: float = 200.0,
    own: bool = False,
    void: str = "",
    author: str = "Ada",
    tokens: int = 65_536,
    hours: int = 0,
) -> record.Execution:
    """Record an execution with one arm, `name`, that enters a track with these figures, one a seed;
    with `own`, the code that trained it was the experiment's."""
    arm = planned_arm()
    of = plan(arms={name: arm}, seeds=range(len(values)), title=f"A run for {track.name}")
    assert of.data
    data = of.data.model_copy(
        update={"source": track.data.source, "validation_sha256": track.data.validation_sha256}
    )
    on = {"source": track.data.source, "sha256": {"train": track.data.train_sha256}}
    of = of.model_copy(
        update={
            "steps": {
                of_text: step.model_copy(
                    update={"config": {**step.config, **(on if step.do == "tokenize" else {})}}
                )
                for of_text, step in of.steps.items()
            }
        }
    )
    entry = record.Speedrun(track=track.name, author=record.Author(name=author))
    told = {"data": data, "speedrun": entry, "eval": EvalConfig(tokens=track.data.eval_tokens)}
    of = of.model_copy(update=told | ({"arms": {}} if own else {}))  # own code is in no arm
    begun = execution(of, f"{track.name} {name}", pull=500, at=START + timedelta(hours=hours))
    finish(store, begun, {(name, seed): value for seed, value in enumerate(values)})
    path = f"executions/{begun.id}/result"
    result = record.require(store, path, record.Result)
    entered = [
        record.EnteredRun(
            arm=name,
            seed=seed,
            own=own,
            own_model=False,
            isolated=True,
            evaluated=record.Evaluated(
                bpb=value,
                loss=value * 0.693,
                targets=track.data.eval_tokens,
                params_sha256=sha(f"{begun.id} {seed}"),
            ),
            void=void,
            resources=of.resources,
            tokens=tokens,
            parameters=arm.parameters,
            model_flops=arm.model_flops * tokens // arm.tokens,
            seconds=seconds * (1 + 0.01 * seed),
            hardware_flops=hardware_flops * (1 + 0.01 * seed),
        )
        for seed, value in enumerate(values)
    ]
    ended = result.model_copy(update={"entered": tuple(entered)})
    store.local(f"records/{path}.json").write_bytes(ended.canonical())
    return begun


def ablation(
    seeds: int = 3, paying: float = 0.02
) -> tuple[record.Plan, dict[tuple[str, int], float | None]]:
    """An ablation at three sizes with its figures: `good` was held out and pays so many bits per
    byte, `idle` was added and does nothing."""
    sizes = {"s": 8, "m": 32, "l": 128}
    arms, figures = {}, dict[tuple[str, int], float | None]()
    for name, worse in (("baseline", 0.0), ("no-good", paying), ("idle", 0.0)):
        for size, steps in sizes.items():
            arms[f"{name}-{size}"] = arm = planned_arm(steps=steps, rate=3e-3 + len(arms) / 1e6)
            law = 0.6 + 30 * float(arm.model_flops or 1) ** -0.1
            for seed in range(seeds):
                noise = random.Random(f"{name} {size} {seed}").gauss(0, 0.001)
                figures[f"{name}-{size}", seed] = law + worse + noise
    parts = [("good", True, "no-good"), ("idle", False, "idle")]
    study = record.PlannedAblation(
        sizes=(*sizes,),
        baseline=tuple(f"baseline-{size}" for size in sizes),
        parts=tuple(
            record.AblatedPart(
                name=name, held_out=held_out, arms=tuple(f"{arm}-{size}" for size in sizes)
            )
            for name, held_out, arm in parts
        ),
    )
    of = plan(arms=arms, seeds=range(seeds), title="What does each part pay?")
    return of.model_copy(update={"ablation": study}), figures


def isoflop() -> tuple[record.Plan, dict[tuple[str, int], float | None]]:
    """An IsoFLOP analysis of two budgets and three sizes with its figures."""
    arms, cells = {}, []
    figures = dict[tuple[str, int], float | None]()
    for budget, best in ((1e12, 64), (4e12, 96)):
        for hidden_dim in (32, 64, 96, 128):
            whole = planned_arm(hidden_dim=hidden_dim)
            steps = round(16 * budget / (whole.model_flops or 1))
            name = f"w{hidden_dim}-{budget / 1e12:.0f}e12"
            arms[name] = planned_arm(hidden_dim=hidden_dim, steps=steps)
            cells.append(record.IsoflopArm(arm=name, budget=budget, size=f"w{hidden_dim}"))
            for seed in range(3):
                off = 0.05 * (hidden_dim / best - 1) ** 2
                figures[name, seed] = 3 - budget / 4e13 + off + seed / 1e4
    of = plan(arms=arms, title="Which size for which budget?")
    study = record.PlannedIsoflop(arms=tuple(cells), ahead=(1e15,))
    return of.model_copy(update={"isoflop": study}), figures


def studies(store: Store) -> None:
    """A finished ablation, and a finished IsoFLOP analysis."""
    for n, (of, found) in enumerate((ablation(), isoflop())):
        finish(store, execution(of, f"study {n}", pull=700 + n), found)


def speedruns(store: Store) -> None:
    """Rows on the lab's tracks: a tie, a row of an own model, one that is void, one on no rank."""
    known = lab_config.defaults().tracks
    cost, budget = known["small-cost"], known["small-budget"]
    compete(store, cost, "plain", [2.05, 2.06, 2.04], tokens=400_000, hours=1)
    compete(store, cost, "quick", [2.09, 2.08, 2.07], hardware_flops=2e13, hours=2)
    compete(store, cost, "twin", [2.07, 2.09, 2.08], hardware_flops=2e13, hours=3, author="Bo")
    compete(store, cost, "mine", [1.95, 1.96], own=True, hardware_flops=9e13, hours=4, author="Cy")
    compete(store, cost, "slow", [2.4, 2.41], hardware_flops=1e13, hours=5)
    compete(store, cost, "seer", [0.9], own=True, void="it looked ahead", hours=6, author="Cy")
    for n in range(60):
        values = [2.0 + 0.01 * n + 0.004 * seed for seed in range(1 + n % 3)]
        who = ("Ada", "Bo", "Cy")[n % 3]
        compete(
            store, budget, f"try-{n}", values, hours=n, author=who, hardware_flops=5e13 - 5e11 * n
        )
