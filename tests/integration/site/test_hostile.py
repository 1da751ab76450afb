"""Of `test_hostile.py` what needs a process, a socket or a compilation."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.service.live import Live
from bot.site.pages.build import build
from bot.site.pages.templating import look
from runner.execution import effects, lifecycle, progress
from runner.history import step_runs
from runner.lib import bounds
from runner.schema import job_reports, lab_config, record
from runner.store import artifacts
from runner.store.leases import LeaseWatch
from runner.store.store import Store
from tests import hostile, synthetic
from tests.integration.runner.test_measured import declare, made, track_in
from tests.stub_trainer import StubJob, StubRay
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture
from tests.unit.site.test_hostile import SOME


def built(store: Store, folder: Path) -> None:
    """The site, whole: each execution has its page, and none says that it could not be built."""
    site = folder / "site"
    tracks = lab_config.find(folder).tracks
    assert build(Store(store.root), site, tracks=tracks).left_out == {}
    for id in record.names(store, "executions"):
        assert (site / f"executions/{id}/index.html").is_file()
    for page in site.rglob("*.html"):
        assert "could not be built" not in page.read_text()


class Ray(StubRay):
    """Its jobs leave what `spoil` makes of it."""

    def __init__(self, spoil: Callable[[Path], None]) -> None:
        super().__init__(pace=None)
        self._spoil = spoil

    def _work(self, job: StubJob) -> Iterator[None]:
        yield from super()._work(job)
        for scratch in sorted(job.root.glob("steps/*/*/*.scratch")):
            (scratch / "log.txt").write_text("step 1\nstep 2\n")
            self._spoil(scratch)


def lived(store: Store, spoil: Callable[[Path], None], name: str) -> None:
    """The whole life of an execution whose jobs leave that; it is looked at before they are
    believed."""
    ray = Ray(spoil)
    arms = {"slow": synthetic.planned_arm(steps=4), "fast": synthetic.planned_arm(steps=4)}
    plan = synthetic.plan(arms=arms, seeds=(0, 1), predictions=[synthetic.prediction()])
    execution = synthetic.execution(plan, name)
    effects.begin(store, execution)
    now, leases = synthetic.START, LeaseWatch(store, lambda: 0.0)
    for _ in range(40):
        now += timedelta(seconds=1)
        facts = effects.observe(store, ray.look, leases, execution.id, now)
        if facts.result:
            return
        if facts.attempts and facts.attempts[-1].job in ("succeeded", "failed"):
            live = Live(store, look("lab", live=True))
            assert live.drawn(execution.id)
            assert live.drawn(execution.id, "fast.s0")
            progress.progress(store, facts)
        if action := lifecycle.decide(facts):
            effects.act(store, ray, facts, action, now)
    raise AssertionError(f"{name} has no end")


def ran(local: LocalStub, folder: Path, store: Path, spoil: Callable[[Path], None]) -> None:
    """An experiment in steps that competes, run by hand, whose steps leave that."""
    make = artifacts.make

    def spoiling(store: Store, name: str, fingerprint: str, build: Any, *rest: Any, **told: Any):
        def both(out: Path) -> None:
            build(out)
            spoil(out)

        return make(store, name, fingerprint, both, *rest, **told)

    track_in(store.parent)
    local.ray = StubRay(pace=1)
    local.ray.make_steps = made()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(artifacts, "make", spoiling)
        answer = ask("run", declare(folder), "--store", store)
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.output
    assert answer.exit_code in (0, 1), answer.output


@SOME
@given(st.data())
def test_whatever_a_trainer_reports_every_page_is_built(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        store = Store(folder / "store")
        lived(store, lambda out: hostile.spoil_some(data.draw, out), "1")
        built(store, folder)


@SOME
@given(st.data())
def test_whatever_steps_leave_every_page_is_built(local: LocalStub, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        spoil = partial(hostile.spoil_some, data.draw, places=False)
        ran(local, folder / "small", folder / "store", spoil)
        built(Store(folder / "store"), folder)


KINDS: dict[str, Any] = {
    "curve": job_reports.StepMetrics,
    "scores": step_runs.SCORES,
}
CHECKED = ("step", "tokens", "targets")  # against the plan


def fill(number: str, out: Path) -> None:
    """Write this number wherever a reader takes it."""
    for path in [*out.rglob("*.json"), *out.rglob("*.jsonl")]:
        names = {*path.relative_to(out).parts, path.stem}
        if kind := next((kind for name, kind in KINDS.items() if name in names), None):
            lines = path.read_text().splitlines()
            taken = partial(is_taken, kind)
            full = (hostile.filled(json.loads(x), number, taken, CHECKED) for x in lines)
            path.write_text("".join(hostile.emitted(line) + "\n" for line in full))


def is_taken(kind: Any, value: Any) -> bool:
    try:
        bounds.parse(kind, hostile.emitted(value).encode())
    except ValueError:
        return False
    return True


def test_with_each_number_wherever_it_is_taken_every_page_is_built(
    local: LocalStub, tmp_path: Path
) -> None:
    folder = tmp_path.resolve()
    store = Store(folder / "store")
    for n, number in enumerate(hostile.NUMBERS):
        lived(store, partial(fill, number), str(n))
        # Equal steps are made once in a store.
        ran(local, folder / f"small-{n}", folder / f"of-{n}", partial(fill, number))
        shutil.copytree(folder / f"of-{n}/records", store.local("records"), dirs_exist_ok=True)
    assert len(record.names(store, "executions")) == 2 * len(hostile.NUMBERS)
    built(store, folder)
