"""Stories of forms of predictions, and of the lab's own forecasts, from issue to verdict."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay

SIZES = (2, 4, 8, 16, 32)  # steps that an arm takes
PREDICTIONS = """\
- metric: eval/bpb
  order: [t32, t16, t8]
  confidence: 80 %
- metric: eval/bpb
  exponent: [t2, t4, t8, t16, t32]
  axis: tokens
  expect: "0.3 ± 0.1"
  confidence: 70 %
- metric: eval/bpb
  arm: t32
  smaller: [t2, t4, t8, t16]
  axis: model_flops
  expect: "> 0.1"
  confidence: 10 %
"""


def on_a_law(arm: str, seed: int) -> float:
    """Bits per byte that fall with the steps in an arm's name."""
    return float(1.2 + 3.0 * (int(arm[1:]) / 2) ** -0.3) + 0.001 * (seed - 1)


def declared(*sizes: int) -> str:
    arms = "".join(f"  t{n}: {{train: {{num_train_steps: {n}}}}}\n" for n in sizes)
    return EXPERIMENT.partition("arms:\n")[0] + "arms:\n" + arms


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: b"\x89PNG")
    with a_lab(tmp_path, StubRay(bpb=on_a_law)) as lab:
        yield lab


def propose(lab: Lab, name: str, declaration: str) -> int:
    """Ada opens a pull request from a branch of its own."""
    files = {
        f"experiments/{name}/experiment.yaml": declaration.encode(),
        f"experiments/{name}/text.txt": TEXT.encode(),
    }
    lab.sandbox.commit("ada", name, files, "Declare an experiment")
    pull = lab.sandbox.open_pull("ada", f"The experiment {name}", "Tests #1.", name)
    lab.settle()
    return pull.number


def test_a_ladder_is_judged_by_its_forms_and_then_foretells_the_next_size(lab: Lab) -> None:
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    assert "by `eval/bpb` the order is `t32`, `t16`, `t8`, best first" in lab.last(issue)
    ladder = propose(lab, "ladder", declared(*SIZES))
    assert (
        "The lab cannot forecast the score: it needs runs of 3 smaller models with the same recipe"
        in lab.last(ladder)
    )
    lab.say("grace", ladder, "/run")
    verdict = lab.last(issue)
    assert (verdict.count("**Confirmed"), verdict.count("❌ **Refuted**")) == (2, 1)
    assert "n = 15: all within 0.3 ± 0.1" in verdict
    assert "t32 over its forecast of 2.5" in verdict
    assert "The lab's forecast" not in lab.last(ladder)

    larger = propose(lab, "larger", declared(64).replace("preregistration: 1\n", ""))
    plan = lab.last(larger)
    assert "The lab's forecast, from its earlier runs (90 % intervals" in plan
    assert "| `t64` | 2.2" in plan
    assert "15 runs of 5 sizes; this arm takes 2 times the compute of the largest" in plan
    lab.say("grace", larger, "/run")
    result = lab.last(larger)
    assert "The score is inside the 90 % interval of the lab's forecast" in result
    assert "inside, " in result

    again = propose(lab, "again", declared(64).replace("preregistration: 1\n", ""))
    assert "The lab cannot forecast the score: the lab has already run it, as x" in lab.last(again)
