"""Losses that do not count: an attempt, a maker or a gang that left more to go on from than there
was before. What only claims to have got further counts like any other loss."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.execution import lifecycle
from runner.history import progress_left
from runner.schema import record
from runner.store import artifacts, checkpoint_sync
from runner.store.store import Store
from runner.worker import multi_host_step, shard_jobs
from runner.worker.step_process import Job
from tests import synthetic
from tests.integration.runner.test_execute import made, planned
from tests.stub_trainer import put
from tests.unit.runner.test_lifecycle import attempt, facts
from tests.unit.runner.test_lost_steps import OWN, TRAINING, ends

MAP = """title: T
resources: {kind: cpu}
steps:
  text: {do: own:text}
  loud: {do: map, inputs: {text: text}, config: {function: own:loud}}
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def checkpoint(folder: Path, step: int) -> None:
    put(folder / str(step) / "params" / "values", b"0.25")


# ── The rule ─────────────────────────────────────────────────────────────────────────────────


def lost(number: int, saved: int, made_steps: int = 0) -> lifecycle.Attempt:
    steps = {f"s{n}": record.StepEnd(state="made") for n in range(made_steps)}
    end = record.Ended(
        at=synthetic.START, how="lost", why=f"why t{number}", saved={"a": saved}, steps=steps
    )
    return lifecycle.Attempt(
        name=f"t{number}",
        folder=f"x.t{number}-aa",
        claimed=attempt().claimed,
        started=True,
        ended=end,
    )


@pytest.mark.parametrize(
    ("saved", "due"),
    [
        ([4, 8, 12], lifecycle.Claim("t4")),
        ([4, 8, 12, 12, 12], lifecycle.Claim("t6")),
        (
            [4, 8, 8, 8, 8],
            lifecycle.Conclude(
                "failed",
                "5 attempts were lost, the last 3 of them without progress; of the last "
                "one: why t5",
            ),
        ),
        ([0, 0, 4, 4, 4], lifecycle.Claim("t6")),
        ([8, 4, 6, 7], lifecycle.Conclude),  # less than there was is no more than there was
        ([0, 0, 0], lifecycle.Conclude("failed", "3 attempts were lost; of the last one: why t3")),
    ],
)
def test_only_losses_in_a_row_that_got_no_further_count(
    saved: list[int], due: lifecycle.Action | type
) -> None:
    found = lifecycle.decide(facts(*(lost(n, at) for n, at in enumerate(saved, 1))))
    assert isinstance(found, due) if isinstance(due, type) else found == due


def test_one_more_finished_step_is_progress_despite_lost_checkpoints() -> None:
    known = facts(lost(1, 390), lost(2, 0, 1), lost(3, 0, 2), lost(4, 0, 2), lost(5, 9, 2))
    assert lifecycle.decide(known) == lifecycle.Claim("t6")


def test_a_newest_checkpoint_is_one_that_holds_something(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    assert checkpoint_sync.saved(place, 100) == 0
    (place / "5" / "params").mkdir(parents=True)
    assert checkpoint_sync.saved(place, 100) == 0
    checkpoint(place, 4)
    checkpoint(place, 30)
    put(place / "7" / "rest" / "values", b"1")
    put(place / "8.orbax-checkpoint-tmp" / "params" / "values", b"1")
    assert checkpoint_sync.saved(place, 100) == 30
    assert checkpoint_sync.saved(place, 29) == 4
    (tmp_path / "link").symlink_to(place)
    assert checkpoint_sync.saved(tmp_path / "link", 100) == 0


# ── Makers of a step ─────────────────────────────────────────────────────────────────────────


def killed_at(
    monkeypatch: pytest.MonkeyPatch, leave: Callable[[Path, int], None], most: int
) -> list[int]:
    """Have each of `most` makers of a `train` or `map` step be killed after it has left something
    in its scratch folder; other steps' outputs, and what is made after that, are a file."""
    times: list[int] = []

    def make(do: str, job: Job, *_: object) -> dict[str, str]:
        if do in ("train", "map") and len(times) < most:
            times.append(len(times) + 1)
            leave(Path(job.scratch), times[-1])
            raise artifacts.MakerLost("its process was ended by SIGKILL")
        (Path(job.out) / "train.txt").write_text("text")
        return {}

    monkeypatch.setattr(shard_jobs, "make", make)
    return times


def test_a_step_whose_makers_are_killed_is_made_where_each_got_further(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at(monkeypatch, lambda scratch, n: checkpoint(scratch / "checkpoints", 4 * n), 7)
    plan = planned(tmp_path, store, TRAINING, own=OWN)
    made(store, plan)
    assert [how for _, how, _ in ends(store, plan, "train")] == ["lost"] * 7 + ["made"]


def test_a_text_whose_makers_are_killed_is_made_where_each_made_a_further_part(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(scratch: Path, n: int) -> None:
        put(scratch / "parts" / f"{n:032x}" / shard_jobs.DIGESTS, b"{}")
        put(scratch / "parts" / f"{n + 1:032x}.{n:016x}" / "made" / "half", b"")  # aside

    killed_at(monkeypatch, leave, 5)
    plan = planned(tmp_path, store, MAP, own=OWN + "\ndef loud(text):\n    return text\n")
    made(store, plan)
    assert [how for _, how, _ in ends(store, plan, "loud")] == ["lost"] * 5 + ["made"]


@pytest.mark.parametrize(
    "leave",
    [
        lambda scratch, _: checkpoint(scratch / "checkpoints", 4),
        lambda scratch, n: checkpoint(scratch / "checkpoints", 40 + n),  # of 40 steps
        lambda scratch, n: (scratch / "checkpoints" / str(n) / "params").mkdir(parents=True),
        lambda scratch, n: put(scratch / "curve" / "000000.jsonl", b'{"step":%d}\n' % n),
        lambda scratch, n: put(scratch / "parts" / f"{n:032x}" / "made" / "x", b"1"),
    ],
)
def test_a_maker_that_only_claims_to_get_further_counts(
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[Path, int], None],
) -> None:
    times = killed_at(monkeypatch, leave, 99)
    plan = planned(tmp_path, store, TRAINING, own=OWN)
    with pytest.raises(artifacts.MakingFailed, match="the last time its process was ended"):
        made(store, plan)
    assert len(times) <= 4, "one of them got further, at most"


def test_an_attempt_at_a_graph_got_further_where_a_step_of_it_did(
    tmp_path: Path, store: Store
) -> None:
    plan = planned(tmp_path, store, TRAINING, own=OWN)
    execution = synthetic.execution(plan)
    assert progress_left.of_steps(store, execution, {}) == {}
    step = plan.steps["train"]
    for by, generation, steps in (("another", 1, 32), (execution.id, 2, 8), (execution.id, 3, 16)):
        start = artifacts.Start(
            name=step.store,
            fingerprint=step.fingerprint,
            generation=generation,
            maker="0" * 16,
            by=by,
            host="gone",
        )
        store.create(f"leases/{start.lease}/start.json", start.canonical())
        checkpoint(store.local(f"{start.folder}.scratch/checkpoints"), steps)
    assert progress_left.of_steps(store, execution, {}) == {"train": 16}, (
        "by this execution's makers"
    )
    ended = {"train": record.StepEnd(state="made")}
    assert progress_left.of_steps(store, execution, ended) == {}, (
        "of what is made nothing is left to do"
    )


# ── Gangs ────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_was_lost_is_followed_by_another_as_long_as_it_gets_further(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = iter([4, 8, 12, 12, 12, 12])

    def lose(_: Store, __: str, ___: object, job: Job, *____: object) -> None:
        checkpoint(Path(job.scratch) / "checkpoints", next(reached))
        raise artifacts.MakerLost("host 1 of 2 was lost: its node is gone")

    killed_at(monkeypatch, lambda *_: None, 0)
    monkeypatch.setattr(multi_host_step, "train", lose)
    two = TRAINING.replace("do: train\n", "do: train\n    resources: {kind: cpu, count: 2}\n")
    plan = planned(tmp_path, store, two, own=OWN)
    with pytest.raises(
        artifacts.MakingFailed, match=r"lost 6 times, the last 3 of them in vain; .*host 1 of 2"
    ):
        made(store, plan)
    assert [how for _, how, _ in ends(store, plan, "train")] == ["lost"] * 6 + ["failed"]
