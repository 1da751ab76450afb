"""Stories of studies: an ablation and an IsoFLOP analysis, from the plan to comment and page."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot.site.pages.build import build
from runner.publish import charts
from runner.store.store import Store
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay
from tests.unit.runner.test_studies_declared import ABLATION, ISOFLOP
from tests.unit.runner.test_tune_declared import TUNED
from tests.unit.site.test_pages import Page

LARGE = {"small": 2.4, "large": 2.1, "huge": 1.9}
BEST = {("s", "2e8"): 2.3, ("m", "2e8"): 2.2, ("l", "2e8"): 2.25,
        ("s", "4e8"): 2.2, ("m", "4e8"): 2.0, ("l", "4e8"): 2.02}  # fmt: skip


@pytest.fixture
def lab_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[str, int], float]], Lab]]:
    """Makes a lab in which runs score so."""
    monkeypatch.setattr(charts, "png", lambda _: b"\x89PNG")
    opened = []

    def make(bpb: Callable[[str, int], float]) -> Lab:
        context = a_lab(tmp_path, StubRay(bpb=bpb))
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def page_of(lab: Lab, at: Path) -> tuple[Page, dict[str, object]]:
    """The page of the only execution, and the JSON of its study."""
    build(Store(lab.root / "store"), at)
    (twin,) = (at / "api/studies").glob("*.json")
    page = Page(at / f"executions/{twin.stem}/index.html")
    (found,) = json.loads(twin.read_text())["studies"]
    return page, found


def test_an_ablation_is_answered_in_the_thread_and_on_the_site(
    lab_of: Callable[[Callable[[str, int], float]], Lab], tmp_path: Path
) -> None:
    def bpb(arm: str, seed: int) -> float:
        part, _, size = arm.rpartition("-")
        return LARGE[size] + 0.08 * (part == "no-decay") + 0.001 * seed * (part == "z-loss")

    lab = lab_of(bpb)
    pull = lab.propose(ABLATION)
    assert "Ablation: 1 part held out and 1 part added, one by one, at 3 sizes" in lab.last(pull)
    lab.say("grace", pull, "/run")
    said = lab.last(pull)
    assert "### Ablation" in said
    assert "`decay` pays in FLOPs (" in said
    assert "| `decay` | held out | " in said
    assert "<summary>Each size</summary>" in said
    page, found = page_of(lab, tmp_path / "site")
    assert "decay pays in FLOPs (" in page.text
    assert [part["name"] for part in found["parts"]] == ["decay", "z-loss"]  # type: ignore[attr-defined]


def test_the_best_size_for_a_budget_is_answered_in_the_thread_and_on_the_site(
    lab_of: Callable[[Callable[[str, int], float]], Lab], tmp_path: Path
) -> None:
    def bpb(arm: str, seed: int) -> float:
        size, _, budget = arm.partition("-")
        return BEST[size, budget] + 0.001 * seed

    lab = lab_of(bpb)
    pull = lab.propose(ISOFLOP)
    assert "IsoFLOP: 2 budgets (2.00e8, 4.00e8 FLOPs a run) and 3 sizes" in lab.last(pull)
    lab.say("grace", pull, "/run")
    said = lab.last(pull)
    assert "### IsoFLOP" in said
    assert "| `1.00e10` |" in said
    page, found = page_of(lab, tmp_path / "site")
    assert "N*(C) = " in page.text
    assert [one["budget"] for one in found["optima"]] == [2e8, 4e8, 1e10]  # type: ignore[attr-defined]


def test_a_search_for_settings_is_answered_with_its_trials(
    lab_of: Callable[[Callable[[str, int], float]], Lab], tmp_path: Path
) -> None:
    lab = lab_of(lambda arm, _: 2.0 + 0.1 * (arm == "slow"))
    pull = lab.propose(TUNED)
    assert "at most 12 trials for each of 2 arms (24 in all)" in lab.last(pull)
    lab.say("grace", pull, "/run")
    said = lab.last(pull)
    assert "### Tuning" in said
    assert "| `fast` | \\{learning\\_rate: 0.003, weight\\_decay: 0.1\\} | 2 |" in said
    page, found = page_of(lab, tmp_path / "site")
    assert "the budget is spent" in page.text
    assert "learning_rate 0.003" in Page(*(tmp_path / "site/runs").glob("*.fast.s0.html")).text
    assert found["arms"]["slow"]["trials"][0]["seed"] == 100  # type: ignore[index]
