"""The table of arms, where some have an own model."""

from pathlib import Path

from bot.site.facts.lab import read_lab
from bot.site.pages import executions
from bot.site.pages.build import build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


def own_arm(**keys: object) -> record.PlannedArm:
    """An arm with an own model, whose cost is not known in advance."""
    unknown = {"parameters": None, "forward_flops_per_token": None, "model_flops": None}
    own = {"own": {"model": "model:build"}, "model": {"seq_len": 256, **keys}}
    return record.PlannedArm.model_validate(synthetic.planned_arm().model_dump() | unknown | own)


def test_what_only_the_labs_model_can_have_does_not_tell_an_own_model_from_it() -> None:
    arms = {"labs": synthetic.planned_arm(), "own": own_arm(width=48)}
    plan = synthetic.plan().model_copy(update={"arms": arms})
    shared, differing = executions.knobs(plan)
    assert differing["own"] == {"width": 48, "own.model": "model:build"}
    assert differing["labs"] == {"width": None, "own.model": None}
    assert (shared["hidden_dim"], shared["seq_len"]) == (128, 256)


def test_what_the_labs_models_do_not_share_is_unknown_of_an_own_model() -> None:
    arms = {
        "own": own_arm(),
        "narrow": synthetic.planned_arm(),
        "wide": synthetic.planned_arm(hidden_dim=256),
    }
    plan = synthetic.plan().model_copy(update={"arms": arms})
    _, differing = executions.knobs(plan)
    assert [differing[name]["hidden_dim"] for name in arms] == [None, 128, 256]
    assert "rope_theta" not in differing["own"]


def test_an_own_model_has_the_parameters_that_the_lab_counted(tmp_path: Path) -> None:
    store, labs = Store(tmp_path / "store"), synthetic.plan()
    plan = labs.model_copy(update={"arms": {**labs.arms, "fast": own_arm()}})
    of = synthetic.execution(plan)
    runs = [synthetic.run(labs, *run, 3.5, execution=of.id) for run in plan.runs()]
    counted = []
    for run in runs:
        assert run.evaluated
        told = {"parameters": 4321} if run.arm == "fast" else {}
        evaluated = run.evaluated.model_copy(update=told)
        counted.append(run.model_copy(update={"evaluated": evaluated}))
    synthetic.finish(store, of, {}, runs=counted)
    (entry,) = read_lab(store).entries
    assert entry.parameters("fast") == 4321
    assert entry.parameters("slow") == labs.arms["slow"].parameters
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site" / "executions" / of.id / "index.html")
    assert " 4,321 " in page.text
    assert "an own model has only its own" in page.text
