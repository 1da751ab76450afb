"""Model cards: what they say of a model, and that a stranger's title cannot change their form."""

from typing import Any

import pytest

from runner.planning import planned_steps
from runner.worker.models import model_card
from runner.worker.models.model_card import Score

MODEL = {"num_layers": 2, "hidden_dim": 8, "seq_len": 64, "vocab_size": 256}
TRAIN = {"train_batch_size": 2, "num_train_steps": 5, "learning_rate": 0.01}
ABOUT: dict[str, Any] = {
    "title": "Wide",
    "experiment": "experiments/wide",
    "models": {"wide,seed=0": "train/wide,seed=0"},
    "steps": {
        "train/wide,seed=0": {
            "do": "train",
            "config": {"model": MODEL, "train": TRAIN, "seed": 0},
            "inputs": ["tokenize"],
        },
        "tokenize": {"do": "tokenize", "config": {"source": "stdlib"}, "inputs": []},
    },
}
SCORES = {
    "wide,seed=0": {"eval/bpb": Score(2.0, 0.1), "task/a/accuracy": Score(0.5)},
    "wide,seed=1": {"eval/bpb": Score(2.2)},
    "deep,seed=0": {"eval/bpb": Score(9.0)},
}


def card(about: dict[str, Any] = ABOUT, licence: str | None = None, chats: bool = False) -> str:
    config = {"about": about, "licence": licence}
    return model_card.written(config, "wide,seed=0", MODEL, 12345, SCORES, chats=chats)


def test_a_card_says_data_tokens_seed_and_how_to_run_it_again() -> None:
    said = card()
    assert "12,345 parameters" in said
    assert said.index("`tokenize` (tokenize): `source stdlib`") < said.index("`train/wide,seed=0`")
    assert "640 tokens in 5 steps of 2 × 64, learning rate 0.01, seed 0" in said
    assert "regatta run experiments/wide" in said


def test_a_score_has_an_interval_by_items_and_one_by_seeds_of_the_same_arm() -> None:
    said = card()
    # 2.1 ± 12.706·0.1414/√2 for two seeds
    assert "| `eval/bpb` | 2.0000 | 1.8040 to 2.1960 | 2.1000, 0.8294 to 3.3706 (2 seeds) |" in said
    assert "| `task/a/accuracy` | 0.5000 | not known | one seed |" in said
    assert "9.0" not in said


@pytest.mark.parametrize(
    ("licence", "words"), [("mit", "## Licence\n\nmit\n"), (None, "names none")]
)
def test_a_licence_is_named_or_said_to_be_missing(licence: str | None, words: str) -> None:
    said = card(licence=licence)
    assert words in said
    assert ('license: "mit"' in said) == (licence == "mit")


def test_a_title_cannot_add_a_heading_a_link_or_a_key_of_the_front_matter() -> None:
    title = "a\n---\nlicense: mit\n# b [c](http://x) <img src=x> `d`"
    said = card(ABOUT | {"title": title})
    [line] = [line for line in said.splitlines() if "---" in line and line.startswith("# ")]
    assert line == (
        r"# a --- license: mit \# b \[c\]\(http://x\) \<img src=x\> \`d\` \(wide,seed=0\)"
    )
    assert said.count("\n---\n") == 1


def test_a_model_with_a_chat_template_is_used_as_a_chat() -> None:
    assert "pipeline(" in card(chats=True)
    assert "pipeline(" not in card()


def test_what_a_card_says_of_a_plan_covers_only_what_the_models_depend_on() -> None:
    class Step:
        do, config = "x", {"key": 1}

        def __init__(self, *needs: str) -> None:
            self.needs = needs

    steps: Any = {"a": Step(), "b": Step("a"), "other": Step("a"), "c/x": Step("b")}
    about = planned_steps.about("T", "E", {"models": ["c/x"], "tokens": ["other"]}, steps)
    assert about["models"] == {"x": "c/x"}
    assert list(about["steps"]) == ["a", "b", "c/x"]
    assert about["steps"]["b"] == {"do": "x", "config": {"key": 1}, "inputs": ["a"]}


def test_a_name_in_a_declaration_cannot_add_a_picture_or_a_link() -> None:
    steps = ABOUT["steps"] | {
        "tokenize": {
            "do": "tokenize",
            "config": {"source": "![x](https://else.where/x.png) `[y](https://else.where)`"},
            "inputs": [],
        }
    }
    said = card({**ABOUT, "steps": steps})
    assert "`source ![x](https://else.where/x.png) [y](https://else.where)`" in said
