"""The whole way of models that cheat: declared, trained and scored under bubblewrap, measured and
ranked. Only what is honest, or can be made honest by the lab, gets a rank."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from engine.data.lab_texts import read_text
from engine.data.tokenize import train_bpe
from runner.analysis import speedrun_ranking, speedrun_rows
from runner.analysis.speedrun_ranking import Ranked
from runner.history import measurements, provenance
from runner.isolation import bubblewrap
from runner.isolation.bubblewrap import Limits
from runner.planning import planner
from runner.schema import lab_config, record, step_graph
from runner.schema.tracks import BYTE_TOKENIZER, Track
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from tests import synthetic
from tests.cheats import entries
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
    arms = (f"  {name}: {{own: {json.dumps(functions)}}}" for name, functions in own.items())
    return entered(tmp_path, track, DECLARED.format(arms="\n".join(arms), seeds=seeds))


def entered(tmp_path: Path, track: Track, text: str) -> dict[str, Ranked]:
    """Every arm's row of this declaration on the track."""
    folder = tmp_path / "race"
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(text)
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


def test_what_the_declaration_of_own_code_holds_is_shipped(tmp_path: Path, tiny: Track) -> None:
    weights = "9" * 60_000
    found = entered(
        tmp_path,
        tiny,
        DECLARED.format(
            arms='  table: {own: {model: "model:Honest"}, model: {weights: "' + weights + '"}}\n'
            '  plugged: {own: {loss: "model:nats"}, options: {weights: [' + "1.5, " * 4000 + "]}}",
            seeds=[0],
        ),
    )
    table, plugged = (found[name].row.shipped for name in ("table", "plugged"))
    assert table.declared > 60_000
    assert table.tables >= 60_000
    assert plugged.declared > 4 * 4000
    assert plugged.size == plugged.weights + plugged.code + plugged.declared
    assert found["plain"].row.shipped.declared == 0, "only the lab reads it"


def test_only_entries_with_the_tracks_tokenizer_have_a_rank(tmp_path: Path, tiny: Track) -> None:
    assert tiny.data.tokenizer_digest == BYTE_TOKENIZER
    text = read_text("lab-2026-11", None).train.decode()
    for size in (300, 301):
        data = tiny.data.model_copy(
            update={"tokenizer": "bpe", "tokenizer_sha256": train_bpe([text], 300).sha256}
        )
        track = tiny.model_copy(update={"data": data, "target": 9.0})
        declared = entries.STEPS.replace(
            "source: lab-2026-11", f"source: lab-2026-11, tokenizer: bpe, vocab_size: {size}"
        ).replace("hidden_dim: 8", f"vocab_size: {size}, hidden_dim: 8")
        (found,) = entered(
            tmp_path, track, declared.replace("seeds: [0, 1]", "seeds: [0]")
        ).values()
        assert found.rank == (1 if size == 300 else None), found.why
        assert size == 300 or "it is not scored with this track's tokenizer" in found.why


def test_seeds_that_change_nothing_are_caught(tmp_path: Path, tiny: Track) -> None:
    found = raced(tmp_path, tiny, "OneSeed")
    assert (found["oneseed"].rank, found["oneseed"].check) == (None, "seeds")
    assert found["plain"].rank == 1


def test_a_model_that_always_looks_ahead_has_no_score(tmp_path: Path, tiny: Track) -> None:
    with pytest.raises(MakingFailed, match="change with the tokens after it"):
        raced(tmp_path, tiny, "Ahead")
