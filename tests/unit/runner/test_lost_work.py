"""What lost machines cost: counted from curves and ends, and said in the result, the terminal and
on the site."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from bot.messages import result_comment
from bot.model.thread import Thread, ThreadId
from bot.site.pages.build import build
from runner.cli import execution_view
from runner.execution import device_usage
from runner.history import lost_work, provenance
from runner.history.lost_work import Maker, lost_by
from runner.planning import mesh_words, planner
from runner.schema.job_reports import StepMetrics
from runner.schema.record import Lost, Resources, StepEnd
from runner.store import artifacts
from runner.store.artifacts import End
from runner.store.store import Store
from tests import synthetic
from tests.decided import KINDS, decide
from tests.unit.bot.test_words import ran_of
from tests.unit.runner.test_gang_step import declared

MADE = End(how="made")


def maker(
    first: int, last: int, took: float | None, *, start: float = 4.0, saved: int = 0
) -> Maker:
    """One that did these steps, one a second, after a start."""
    lines = [
        StepMetrics(step=n, loss=1.0, grad_norm=1.0, learning_rate=0.1, tokens=n, seconds=at)
        for at, n in enumerate(range(first, last + 1), start=int(start))
    ]
    return Maker(End(how="lost", seconds=took) if took != -1 else MADE, lines, saved)


@pytest.mark.parametrize(
    ("makers", "steps", "seconds"),
    [
        ([maker(1, 20, -1)], 0, 0.0),
        # Killed at step 17, a second later its successor went on after step 10: the start, steps
        # 1 and 11 to 17, and that second.
        ([maker(1, 17, 21.0), maker(11, 20, -1)], 7, 21.0 - 9),
        ([maker(1, 17, 21.0), maker(18, 20, -1)], 0, 21.0 - 16),  # it saved when it was told
        ([maker(1, 4, 9.0), maker(1, 20, -1)], 4, 9.0),  # before its first checkpoint
        ([maker(1, 0, 3.0), maker(1, 20, -1)], 0, 3.0),  # before its first step
        ([maker(1, 17, 21.0), maker(1, 0, 2.0), maker(11, 20, -1)], 7, 21.0 - 9 + 2.0),
        ([maker(1, 17, 21.0, saved=10)], 7, 21.0 - 9),  # nobody has gone on yet
        ([maker(1, 17, None), maker(11, 20, -1)], 7, 20.0 - 9),  # nobody saw it end
    ],
)
def test_what_was_done_in_vain_is_what_no_checkpoint_kept(
    makers: list[Maker], steps: int, seconds: float
) -> None:
    assert lost_by(makers) == (steps, pytest.approx(seconds))


@pytest.mark.parametrize(
    ("stopped", "times"), [(None, 1), (timedelta(hours=1), 1), (timedelta(hours=-1), 0)]
)
def test_a_maker_that_ended_after_the_execution_was_stopped_was_not_lost(
    tmp_path: Path, stopped: timedelta | None, times: int
) -> None:
    store, execution = Store(tmp_path), synthetic.execution(synthetic.plan())
    step = next(step for step in execution.plan.steps.values() if step.do == "train")
    fingerprint = step.fingerprint

    def build(_: Path) -> None:
        raise artifacts.MakerLost("it was ended")

    with pytest.raises(artifacts.MakingFailed, match="it was lost 1 times"):
        artifacts.make(store, step.store, fingerprint, build, {}, by=execution.id, most_lost=1)
    at = stopped and datetime.now(UTC) + stopped
    assert sum(x.times for x in lost_work.of_execution(store, execution, at)) == times


LOST = Lost(step="train/fast,seed=0", times=3, preempted=2, steps=29, seconds=108.0, price=0.11)


def test_a_loss_is_said_in_steps_seconds_and_money() -> None:
    cheap = replace_(LOST, times=1, preempted=1, steps=1, price=0.001)
    unpriced = replace_(LOST, preempted=0, steps=0, price=None)
    assert [*lost_work.told([LOST, cheap, unpriced])] == [
        "`train/fast,seed=0` lost its machines 3 times, 1 of them without a notice: 29 training "
        "steps done again, 1 min 48 s on its devices, 0.11 US$ lost",
        "`train/fast,seed=0` lost its machines once: 1 training step done again, 1 min 48 s on its "
        "devices, under 0.01 US$ lost",
        "`train/fast,seed=0` lost its machines 3 times: 1 min 48 s on its devices lost",
    ]


def replace_(lost: Lost, **changed: object) -> Lost:
    return lost.model_copy(update=changed)


def test_result_terminal_and_site_say_it(tmp_path: Path) -> None:
    words = "lost its machines 3 times, 1 of them without a notice: 29 training steps done again"
    plan, store = synthetic.plan(), Store(tmp_path / "store")
    ran = ran_of(plan, "words", synthetic.ADA)
    assert ran.result
    result = ran.result.model_copy(update={"lost": (LOST,)})
    thread = Thread(ThreadId(1, 2), "r/l", "https://github.com/r/l", synthetic.START, is_pull=True)
    said = result_comment.result(thread, replace(ran, life=replace(ran.life, result=result)))
    assert words in said
    assert words not in result_comment.result(thread, ran)

    execution = synthetic.execution(plan)
    synthetic.finish(store, execution, synthetic.PLAIN, lost=[LOST])
    build(store, tmp_path / "site")
    page = tmp_path / "site" / "executions" / execution.id / "index.html"
    assert words in page.read_text()
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(execution_view.view(store, provenance.account(store, execution), {}))
    assert words in console.export_text()


def test_the_plan_states_what_a_preemption_may_cost(tmp_path: Path) -> None:
    decide(tmp_path, devices="h100: {price: 2.0, spot_price: 1.0}")
    text = declared(1, "h100").replace("count: 1", "count: 1, spot: true")
    (tmp_path / "experiment.yaml").write_text(text)
    [words] = [x for x in mesh_words.told(planner.plan_folder(tmp_path)) if "taken away" in x]
    assert words.startswith(
        "Spot devices may be taken away. Each time, the lab does again what came after the last "
        "checkpoint: at most 5 steps of each run (of 60), about "
    )
    assert words.endswith("and under 0.01 US$, and the start. It continues until the time limit")


def test_spot_devices_are_paid_by_their_spot_price() -> None:
    plan = synthetic.plan()
    cpu = replace(KINDS["cpu"], price=2.0, spot_price=0.5)
    one, other = (name for name, step in [*plan.steps.items()][1:3])
    spot = plan.steps[other].model_copy(update={"resources": Resources(kind="cpu", spot=True)})
    plan = plan.model_copy(update={"devices": {"cpu": cpu}, "steps": plan.steps | {other: spot}})
    ends = dict.fromkeys((one, other), StepEnd(state="made", seconds=3600.0))
    [used] = device_usage.of_steps(plan, ends)
    assert (used.device_seconds, used.price) == (7200.0, 2.5)
