"""The whole way of models that cheat: declared, trained and scored under bubblewrap, measured and
ranked. Only what is honest, or can be made honest by the lab, gets a rank."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from engine.data.lab_texts import read_text
from runner.analysis import speedrun_ranking, speedrun_rows
from runner.analysis.speedrun_ranking import Ranked
from runner.history import measurements, provenance
from runner.isolation import bubblewrap
from runner.isolation.bubblewrap import Limits
from runner.planning import planner
from runner.schema import lab_config, record, step_graph
from runner.schema.tracks import Track
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from tests import synthetic
from tests.cheats import model as cheats
from tests.decided import decide, one_track

RANKED = ("Honest", "Unnormalised", "Cheap")
VOID = {  # the check that says so; others are in test_apart
    "AheadLate": "prefixes",
    "ByFile": "memory",
    "OnlyText": "probabilities",
}
PARTS = {  # of training, all honest
    "loss": "model:nats",
    "optimizer": "model:sgd",
    "schedule": "model:constant",
    "data": "model:one_order",
}
DECLARED = """\
title: Who cheats?
data: {{source: lab-2026-11}}
model: {{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 32}}
train: {{train_batch_size: 2, num_train_steps: 2, learning_rate: 1.0e-6}}
eval: {{tokens: 4096}}
resources: {{kind: cpu}}
speedrun: {{track: tiny, author: {{name: Ada}}}}
seeds: {seeds}
arms:
  plain: {{}}
{arms}
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(bubblewrap.probe()),
        reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
    ),
]


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path) -> Track:
    text = read_text("lab-2026-11", None).validation_sha256
    decide(tmp_path, tracks=one_track("tiny", 100.0, 4096, text))
    return lab_config.find(tmp_path).tracks["tiny"]


def raced(tmp_path: Path, track: Track, *models: str) -> dict[str, Ranked]:
    """Every arm's row on the track, by its model's name. Raises MakingFailed."""
    same = {"data": "model:one_order"} if models == ("OneSeed",) else {}
    arms = {name.lower(): {"model": f"model:{name}"} | same for name in models}
    return declared(tmp_path, track, arms, [0, 1] if same else [0])


def declared(
    tmp_path: Path, track: Track, own: Mapping[str, Mapping[str, str]], seeds: Sequence[int]
) -> dict[str, Ranked]:
    """The same of arms with these functions of their own."""
    folder = tmp_path / "race"
    folder.mkdir()
    arms = (f"  {name}: {{own: {json.dumps(functions)}}}" for name, functions in own.items())
    (folder / "experiment.yaml").write_text(DECLARED.format(arms="\n".join(arms), seeds=seeds))
    (folder / "model.py").write_bytes(Path(cheats.__file__).read_bytes())
    store = Store(tmp_path / "store")
    plan = planner.plan_folder(folder, store)
    execution = synthetic.execution(plan)
    terms = executor.Terms("bubblewrap", Limits(memory=4 << 30, seconds=200))
    code = store.local(planner.code_folder(plan))
    for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
        executor.make(store, name, plan.steps, plan.kinds, code, execution.id, terms=terms)
    ends = provenance.step_ends(store, execution)
    result = record.Result(
        at=execution.at, state="done", entered=measurements.runs(store, execution, ends, 0.0)
    )
    ranked = speedrun_ranking.rank(track, speedrun_rows.rows(execution, result))
    return {one.row.title.rpartition(": ")[2]: one for one in ranked}


def test_only_honest_models_have_a_rank(tmp_path: Path, tiny: Track) -> None:
    found = raced(tmp_path, tiny, *RANKED, *VOID)
    for name, check in VOID.items():
        assert found[name.lower()].rank is None
        assert found[name.lower()].check == check, found[name.lower()].why
    for name in RANKED:
        assert found[name.lower()].rank is not None, found[name.lower()].why
    honest, bold, cheap = (found[x].row for x in ("honest", "unnormalised", "cheap"))
    assert bold.figures == pytest.approx(honest.figures, abs=1e-6), "the lab normalises"
    assert cheap.model_flops == (0.0,), "as it says itself"
    assert found["cheap"].value == cheap.hardware_flops[0] > 1e10, "as was measured"
    assert found["plain"].rank == 1
    assert found["plain"].value == found["plain"].row.model_flops[0]
    assert found["plain"].row.tier == "reproduced"


def test_an_entry_with_each_part_of_its_own_alone_and_together_has_a_rank(
    tmp_path: Path, tiny: Track
) -> None:
    arms = {key: {key: function} for key, function in PARTS.items()}
    arms |= {"decoder": PARTS, "all": {"model": "model:Honest", **PARTS}}
    found = declared(tmp_path, tiny, arms, [0])
    assert {name: one.why for name, one in found.items()} == dict.fromkeys([*arms, "plain"], "")
    assert all(one.rank for one in found.values())


def test_seeds_that_change_nothing_are_caught(tmp_path: Path, tiny: Track) -> None:
    found = raced(tmp_path, tiny, "OneSeed")
    assert (found["oneseed"].rank, found["oneseed"].check) == (None, "seeds")
    assert found["plain"].rank == 1


def test_a_model_that_always_looks_ahead_has_no_score(tmp_path: Path, tiny: Track) -> None:
    with pytest.raises(MakingFailed, match="change with the tokens after it"):
        raced(tmp_path, tiny, "Ahead")
