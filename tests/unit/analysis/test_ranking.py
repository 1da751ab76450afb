"""Tracks: who is ranked, who is not and why, and what chance has to do with it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from scipy.stats import ttest_ind

from engine.data.lab_texts import read_text
from engine.data.tokenize import byte_tokenizer
from runner.analysis import speedrun_ranking
from runner.analysis.comparability import Scored
from runner.analysis.speedrun_checks import Failed
from runner.analysis.speedrun_ranking import Ranked, Row
from runner.lib.problems import BadExperiment
from runner.schema import corpora, lab_config, tracks
from runner.schema.record import Author
from runner.schema.tracks import BYTE_TOKENIZER, Track

ADA = Author(name="Ada", affiliation="", url="")
START = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = "a" * 64
SCORED = {"source": "a text", "validation_sha256": TEXT, "eval_tokens": 1000}
BASE: dict[str, Any] = {"name": "t", "title": "T", "data": SCORED, "spread": 0.01}

COST = Track.model_validate({**BASE, "kind": "target", "target": 2.0, "cost": "model"})
BUDGET = Track.model_validate({**BASE, "kind": "budget", "budget": 1e12, "cost": "model"})
TIME = Track.model_validate(
    {**BASE, "kind": "time", "target": 2.0, "hardware": {"kind": "cpu", "count": 1}}
)
SECONDS = Track.model_validate(
    {**BASE, "kind": "budget", "seconds": 60, "hardware": {"kind": "cpu", "count": 1}}
)
WORDS = {**SCORED, "tokenizer": "bpe"}
UNNAMED = BUDGET.model_copy(update={"data": tracks.Scored.model_validate(WORDS)})
NAMED = BUDGET.model_copy(
    update={"data": tracks.Scored.model_validate({**WORDS, "tokenizer_sha256": "c" * 64})}
)
FIVE = BUDGET.model_copy(update={"seeds": 5})
UNFETCHED = BUDGET.model_copy(update={"data": tracks.Scored(source="web@1", eval_tokens=9)})
SCALING = Track.model_validate({**BASE, "kind": "scaling", "at": 1e13, "cost": "model"})


def on(text: str, tokens: int, tokenizer: str = "byte") -> Scored:
    return Scored("a text", tokenizer, text, tokens)


def row(id: str, day: int = 0, **more: Any) -> Row:
    given: dict[str, Any] = {
        "title": id,
        "author": ADA,
        "track": "t",
        "tier": "reproduced",
        "at": START + timedelta(days=day),
        "figures": (1.9, 1.92),
        "scored": on(TEXT, 1000),
        "model_flops": (1e11, 1e11),
        "hardware_flops": (4e11, 4.1e11),
        "hardware": "1 × cpu",
        "seconds": (10.0, 10.4),
    }
    return Row(id=id, **given | more)


def told(track: Track, *rows: Row) -> dict[str, Ranked]:
    return {one.row.id: one for one in speedrun_ranking.rank(track, rows)}


def test_the_lab_has_a_track_of_each_kind_on_a_text_that_it_ships() -> None:
    known = lab_config.defaults().tracks
    assert {track.kind for track in known.values()} == {"target", "budget", "time", "scaling"}
    for track in (one for one in known.values() if one.data.validation_sha256):
        text = read_text(track.data.source, None)
        assert text.validation_sha256 == track.data.validation_sha256
        assert text.train_sha256 == track.data.train_sha256
        text.check_lengths(256, track.data.eval_tokens)


@pytest.mark.parametrize(
    ("track", "change", "why"),
    [
        (
            COST,
            {"scored": on("b" * 64, 1000)},
            "SHA-256 bbbbbbbbbbbb…, and this track is on a text",
        ),
        (COST, {"scored": on(TEXT, 500)}, "on 500 tokens (byte), and this track is on 1,000"),
        (COST, {"scored": on(TEXT, 1000, "bpe")}, "on 1,000 tokens (bpe), and this track"),
        (COST, {"tokenizer_sha256": "d" * 64}, "which has SHA-256 7d3370162d59…; this entry's tok"),
        (UNNAMED, {"scored": on(TEXT, 1000, "bpe")}, "names no digest of its tokenizer (bpe); wr"),
        (
            UNNAMED,
            {"scored": on(TEXT, 1000, "bpe"), "tokenizer_sha256": "d" * 64},
            f"below its `data`; this entry's tokenizer has SHA-256 {'d' * 64}",
        ),
        (
            NAMED,
            {"scored": on(TEXT, 1000, "bpe"), "tokenizer_sha256": "d" * 64},
            "which has SHA-256 cccccccccccc…; this entry's tokenizer has SHA-256 dddd",
        ),
        (NAMED, {"scored": on(TEXT, 1000, "bpe")}, "this track's tokenizer, which has SHA-256 c"),
        (COST, {"scored": None}, "on which text it was scored is not known"),
        (COST, {"figures": ()}, "no run of it has a figure"),
        (COST, {"figures": (2.1,)}, "its 2.1000 bits per byte do not reach 2"),
        (COST, {"model_flops": ()}, "its model FLOPs are not known"),
        (COST, {"custom": True, "hardware_flops": ()}, "its hardware FLOPs are not known"),
        (COST, {"failed": Failed("it looks ahead", "prefixes")}, "it looks ahead"),
        (BUDGET, {"model_flops": (2e12,)}, "a run of it costs 2e+12 FLOPs, and the budget"),
        (TIME, {"hardware": "1 × h100"}, "it ran on 1 × h100, and this track on 1 × cpu"),
        (TIME, {"seconds": ()}, "how long it took is not known"),
        (TIME, {"figures": (1.9,)}, "one seed reaches a target by luck too"),
        (TIME, {"figures": (1.8, 2.19)}, "its seeds reach 2 on average has p = 0.49"),
        (SCALING, {}, "a projection takes 4 sizes, and here are 1"),
        (SECONDS, {"seconds": (59.0, 61.0)}, "a run of it took 61 s, and the budget is 60 s"),
        (SECONDS, {"hardware": "8 × h100"}, "it ran on 8 × h100, and this track on 1 × cpu"),
        (SECONDS, {"seconds": ()}, "how long it took is not known"),
        (FIVE, {}, "it has 2 seeds, and this track takes exactly 5"),
        (FIVE, {"figures": (1.9,) * 6}, "it has 6 seeds, and this track takes exactly 5"),
        (UNFETCHED, {}, "which was not fetched in this lab; `regatta corpus fetch web@1` does"),
    ],
)
def test_an_unranked_row_says_why(track: Track, change: dict[str, Any], why: str) -> None:
    found = told(track, row("other", **change))["other"]
    assert found.rank is None
    assert why in found.why


def test_a_row_with_the_tokenizer_that_its_track_names_is_ranked() -> None:
    assert byte_tokenizer().sha256 == BYTE_TOKENIZER
    of_bytes = [row("old"), row("new", tokenizer_sha256=BYTE_TOKENIZER)]
    assert all(one.rank for one in told(COST, *of_bytes).values())
    mine = row("mine", scored=on(TEXT, 1000, "bpe"), tokenizer_sha256="c" * 64)
    assert told(NAMED, mine)["mine"].rank == 1


def test_the_cheapest_that_reaches_the_target_is_first_and_counted_costs_have_no_chance() -> None:
    rows = [row("dear", model_flops=(3e11,)), row("cheap", model_flops=(1e11,))]
    found = told(COST, *rows, row("alike", model_flops=(3e11,)))
    assert [(x.row.id, x.rank, x.shared) for x in found.values()] == [
        ("cheap", 1, False),
        ("alike", 2, True),
        ("dear", 2, True),
    ]


def test_a_custom_row_is_ranked_by_measured_flops_whatever_it_declares() -> None:
    plain = row("plain", model_flops=(1e11,), hardware_flops=(4e11,))
    liar = row("liar", custom=True, model_flops=(1.0,), hardware_flops=(9e11,))
    found = told(COST, plain, liar)
    assert [(x.row.id, x.rank) for x in found.values()] == [("plain", 1), ("liar", 2)]
    assert found["liar"].value == 9e11


def test_rows_without_a_significant_difference_share_a_rank() -> None:
    found = told(
        BUDGET,
        row("a", figures=(1.90, 1.91, 1.92)),
        row("b", figures=(1.905, 1.915, 1.93)),
        row("c", figures=(1.99, 2.0, 2.01)),
    )
    assert [(x.row.id, x.rank, x.shared) for x in found.values()] == [
        ("a", 1, True),
        ("b", 1, True),
        ("c", 3, False),
    ]


def test_a_single_seed_has_the_spread_that_its_track_states() -> None:
    near = told(BUDGET, row("a", figures=(1.90,)), row("b", figures=(1.92,)))
    far = told(BUDGET, row("a", figures=(1.90,)), row("b", figures=(2.00,)))
    assert [x.rank for x in near.values()] == [1, 1]
    assert [x.rank for x in far.values()] == [1, 2]


def test_seeds_that_change_nothing_prove_nothing_where_code_of_their_author_reads_them() -> None:
    standing = row("standing", 0, figures=(1.90, 1.91, 1.92))
    for figures in ((1.899,) * 9, tuple(1.899 + n * 1e-9 for n in range(9))):
        custom = row("luck", 1, figures=figures, custom=True, hardware_flops=(1e11,) * 9)
        found = told(BUDGET, standing, custom)
        assert not found["luck"].record
        assert [one.rank for one in found.values()] == [1, 1]
    timed = row("luck", figures=(1.99,) * 9, custom=True)
    assert "its seeds reach 2 on average" in told(TIME, timed)["luck"].why
    assert told(TIME, row("sure", figures=(1.9,) * 9, custom=True))["sure"].rank == 1


def test_a_record_is_beaten_beyond_chance_or_stands() -> None:
    found = told(
        TIME,
        row("first", 0, seconds=(10.0, 10.2, 9.8), figures=(1.9, 1.91, 1.92)),
        row("luck", 1, seconds=(9.9, 10.1, 9.7), figures=(1.9, 1.91, 1.92)),
        row("faster", 2, seconds=(8.0, 8.2, 7.9), figures=(1.9, 1.91, 1.92)),
    )
    assert [(x.row.id, x.record, x.against) for x in found.values()] == [
        ("faster", True, "first"),
        ("luck", False, "first"),
        ("first", True, ""),
    ]
    assert found["first"].p_value is None
    sides = (9.9, 10.1, 9.7), (10.0, 10.2, 9.8)
    by_scipy = ttest_ind(*sides, equal_var=False, alternative="less").pvalue
    assert found["luck"].p_value == pytest.approx(by_scipy)
    assert found["faster"].p_value is not None
    assert found["faster"].p_value < 1e-3


def test_the_scaling_track_ranks_families_by_what_their_sizes_project() -> None:
    def family(name: str, better: float, day: int) -> list[Row]:
        wave = (1, -1, 1, -1, 1)
        return [
            row(
                f"{name}/{n}",
                day,
                family=name,
                model_flops=(10.0 ** (9 + n / 2),),
                figures=((0.6 + better * (10 ** (n / 2)) ** -0.1) * (1 + 1e-4 * sign),),
            )
            for n, sign in zip(range(5), wave, strict=True)
        ]

    found = speedrun_ranking.rank(SCALING, [*family("good", 2.0, 0), *family("bad", 2.6, 1)])
    assert [(x.row.family, x.rank) for x in found] == [("good", 1), ("bad", 2)]
    best = found[0]
    assert best.value == pytest.approx(0.6 + 2.0 * (10**4) ** -0.1, rel=0.01)
    assert best.interval is not None
    assert best.interval[0] < best.value < best.interval[1]
    assert best.row.id == "good/4", "the largest size stands for its family"


def test_a_budget_of_seconds_ranks_the_best_of_those_within_it_whatever_they_cost() -> None:
    quick = row("quick", figures=(1.95, 1.96), seconds=(9.0, 9.0), custom=True, hardware_flops=())
    found = told(SECONDS, quick, row("good", figures=(1.90, 1.905), seconds=(50.0, 59.0)))
    assert [(x.row.id, x.rank) for x in found.values()] == [("good", 1), ("quick", 2)]


@pytest.mark.parametrize(
    ("tracks", "words"),
    [
        ("x: {kind: budget, data: small, spread: 1}", "needs either `budget`, in FLOPs, or `seco"),
        (
            "x: {kind: budget, data: small, budget: 1, seconds: 9, spread: 1}",
            "needs either `budget`",
        ),
        ("x: {kind: budget, data: small, seconds: 9, spread: 1}", "write `hardware`, too"),
    ],
)
def test_a_track_says_one_budget_and_on_what_it_is_measured(tracks: str, words: str) -> None:
    written = tracks.replace("{", "{title: X, ")
    with pytest.raises(BadExperiment, match=words):
        lab_config.parse({lab_config.TRACKS: f"tracks:\n  {written}\n".encode()})


def test_a_track_on_a_corpus_is_identified_once_the_corpus_is_fetched() -> None:
    assert lab_config.defaults().tracks["fineweb-hour"].data.validation_sha256 is None
    fetched = f"fineweb-edu@10BT: {{fetched: {{sha256: {'a' * 64}, files: 2, bytes: 9}}}}"
    found = lab_config.parse({lab_config.CORPORA: fetched.encode()})
    corpus = found.corpora["fineweb-edu@10BT"]
    assert corpus.fetched
    kept = {**corpus.fetched.model_dump(), **corpus.read()}
    track = found.tracks["fineweb-hour"]
    assert track.data.validation_sha256 == corpora.digest(kept, "validation")
