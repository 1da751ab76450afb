"""Phases: what a run changes at a step, as a function of the step alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.config.phases import SCHEDULE
from engine.config.schema import BatchSizes, TrainConfig
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore, WrongTokens
from engine.training.optim import rates
from tests.examples import examples

BASE: dict[str, Any] = {"train_batch_size": 2, "num_train_steps": 30, "learning_rate": 0.1}


def config(*phases: dict[str, Any], **changes: Any) -> TrainConfig:
    return TrainConfig(**{**BASE, **changes, "phases": list(phases)})


def curve(config: TrainConfig) -> list[float]:
    return [float(rates(config)(step).matrix) for step in range(1, config.num_train_steps + 1)]


# ── The schedule ─────────────────────────────────────────────────────────────────────────────


def test_each_schedule_runs_from_its_own_step_to_the_next_ones() -> None:
    phased = config(
        {"at": 10, "learning_rate": 0.02, "lr_schedule": "cosine", "warmup": 0.2},
        {"at": 15, "tokens": "other"},
        {"at": 20, "lr_schedule": "wsd", "decay": 4},
        warmup=2,
    )
    alone = [
        {"num_train_steps": 10, "warmup": 2},
        {"num_train_steps": 10, "learning_rate": 0.02, "lr_schedule": "cosine", "warmup": 2},
        {"num_train_steps": 10, "learning_rate": 0.02, "lr_schedule": "wsd", "decay": 4},
    ]
    assert curve(phased) == [
        rate for part in alone for rate in curve(TrainConfig(**{**BASE, **part}))
    ]


def test_a_phase_that_repeats_what_holds_changes_no_rate() -> None:
    flat = {"lr_schedule": "constant", "warmup": 5}
    repeated = {"at": 7, "learning_rate": 0.1, "lr_schedule": "constant"}
    assert curve(config(repeated, **flat)) == curve(config(**flat))


def test_a_phase_keeps_the_keys_it_does_not_name() -> None:
    phased = config(
        {"at": 5, "learning_rate": 0.2},
        {"at": 10, "adam_learning_rate": 0.5, "lr_schedule": "wsd"},
        {"at": 15, "learning_rate": 0.3, "decay": 3},
        {"at": 20, "lr_schedule": "constant"},
        optimizer="muon",
        warmup=2,
    )
    keys = "learning_rate", "adam_learning_rate", "lr_schedule", "warmup", "decay"
    assert set(keys) < set(SCHEDULE)
    assert [[getattr(phase, key) for key in keys] for phase in phased.phases] == [
        [0.2, 0.2, "linear", 0, None],
        [0.2, 0.5, "wsd", 0, 0.2],
        [0.3, 0.5, "wsd", 0, 3],
        [0.3, 0.5, "constant", 0, None],
    ]
    assert TrainConfig(**phased.model_dump()) == phased
    assert TrainConfig.model_validate_json(phased.model_dump_json()) == phased
    assert len({phased, TrainConfig(**phased.model_dump())}) == 1, "equal ones are one"


def test_a_cycle_ends_with_its_phase_and_a_floor_stays() -> None:
    phased = config(
        {"at": 12, "cycle": 6, "decay": 2},
        {"at": 24, "learning_rate": 0.2},
        lr_schedule="wsd",
        cycle=4,
        decay=0.5,
        min_lr_ratio=0.1,
    )
    assert [(of.cycle, of.decay, of.min_lr_ratio) for of in phased.phases] == [
        (6, 2, 0.1),
        (None, 2, 0.1),
    ]
    assert curve(phased) == pytest.approx(
        [0.1, 0.1, 0.1, 0.055] * 3 + [0.1, 0.1, 0.1, 0.1, 0.1, 0.055] * 2 + [0.2] * 5 + [0.11]
    )
    assert TrainConfig(**phased.model_dump()) == phased


def test_a_run_without_phases_is_described_as_ever() -> None:
    assert "phases" not in config().model_dump()
    assert config() == TrainConfig(**BASE)


@pytest.mark.parametrize(
    ("phases", "where", "sentence"),
    [
        ([{"at": 5, "warmup": 1}, {"at": 5, "warmup": 2}], (1, "at"), "cannot follow one at 5"),
        ([{"at": 9, "warmup": 1}, {"at": 5, "warmup": 2}], (1, "at"), "cannot follow one at 9"),
        ([{"at": 30, "warmup": 1}], (0, "at"), "the run ends after 30 steps"),
        ([{"at": 0, "warmup": 1}], (0, "at"), "greater than 0"),
        ([{"at": 9}], (0, "at"), "this phase changes nothing; write one of learning_rate, "),
        ([{"learning_rate": 0.1}], (0, "at"), "Field required"),
        ([{"at": 9, "batch": 3}], (0, "batch"), "not permitted"),
        ([{"at": 9, "train_batch_size": 0}], (0, "train_batch_size"), "greater than 0"),
        ([{"at": 9, "cycle": 4}], (0, "cycle"), "cycle 4 goes with lr_schedule wsd only"),
        (
            [{"at": 9, "lr_schedule": "wsd", "cycle": 22}],
            (0, "cycle"),
            "of the steps 10 to 30: cycle 22 is longer than the run of 21 steps; make it shorter",
        ),
        ([{"at": 9, "warmup": 21}], (0, "warmup"), "of the steps 10 to 30: warmup 21 is the whole"),
        ([{"at": 2, "lr_schedule": "wsd"}], (0, "at"), "of the steps 1 to 2: warmup 3 is the"),
        ([{"at": 9, "decay": 3}], (0, "decay"), "decay 3 goes with lr_schedule wsd only"),
        ([{"at": 9, "adam_learning_rate": 1.0}], (0, "adam_learning_rate"), "adamw has one rate"),
        ([{"at": 9, "weights": {"a": 0}}], (0, "weights", "a"), "greater than 0"),
        ([{"at": 9, "weights": {"a": float("inf")}}], (0, "weights", "a"), "finite"),
        ([{"at": 9, "weights": {}}], (0, "weights"), "at least 1"),
        ([{"at": 9, "tokens": "`@x`"}], (0, "tokens"), "match pattern"),
        ([{"at": n, "tokens": "a"} for n in range(1, 40)], (16, "at"), "at most 16 phases"),
        ([{"at": 9, "weights": {f"a{n}": 1 for n in range(40)}}], (0, "weights"), "at most 32"),
    ],
)  # fmt: skip
def test_phases_that_cannot_be_are_refused_where_they_stand(
    phases: list[dict[str, Any]], where: tuple[str | int, ...], sentence: str
) -> None:
    steps = 50 if len(phases) > 2 else 30
    with pytest.raises(ValidationError) as it:
        config(*phases, warmup=3, num_train_steps=steps)
    found = {error["loc"][:3]: error["msg"] for error in it.value.errors()}
    where = ("phases", *where)
    assert sentence in next(words for loc, words in found.items() if loc == where[:3])


def test_phases_do_not_repeat_a_problem_elsewhere() -> None:
    with pytest.raises(ValidationError) as it:
        config({"at": 9, "warmup": 1}, learning_rate=-1)
    assert [error["loc"] for error in it.value.errors()] == [("learning_rate",)]


# ── The data ─────────────────────────────────────────────────────────────────────────────────

SEQ_LEN, BATCH, BLOCK = 8, 6, 16


def counting(windows: int, first: int) -> TokenStore:
    """A store whose windows show by their first token where they were cut."""
    tokens = np.arange(first, first + SEQ_LEN * windows + 1)
    return TokenStore.of(tokens, vocab_size=50_000, bytes_per_token=1.0 + first / 10_000)


STORES = [counting(300, 0), counting(200, 10_000), counting(100, 20_000)]


def sampler(weights: Sequence[float], *phases: tuple[int, Sequence[float]]) -> Sampler:
    """Of those stores that have a weight at some time."""
    turns = [(0, weights), *phases]
    used = [i for i in range(3) if any(of[i] for _, of in turns)]
    (_, first), *later = [(at, [of[i] for i in used]) for at, of in turns]
    sources = [(STORES[i], weight) for i, weight in zip(used, first, strict=True)]
    return Sampler(sources, 5, BATCH, SEQ_LEN, block=BLOCK, phases=later)


def starts(sampler: Sampler, steps: range) -> list[int]:
    return [x for n in steps for x in sampler.rows(n, range(BATCH)).inputs_BS[:, 0].tolist()]


def test_a_phase_changes_the_shares_at_its_step_and_nothing_before() -> None:
    plain, phased = sampler([3, 1, 0]), sampler([3, 1, 0], (8, [0, 1, 1]))
    assert starts(phased, range(1, 9)) == starts(plain, range(1, 9))
    whole_blocks = starts(phased, range(9, 9 + BLOCK))[: BATCH * BLOCK]
    for block in range(BATCH):
        rows = whole_blocks[block * BLOCK : (block + 1) * BLOCK]
        assert Counter(start // 10_000 for start in rows) == {1: 8, 2: 8}
    assert phased.bytes_per_token(8) == pytest.approx((3 * 1 + 2) / 4)
    assert phased.bytes_per_token(9) == pytest.approx((2 + 3) / 2)


def test_a_phase_with_the_same_shares_changes_nothing() -> None:
    for weights in ([3.0, 1.0, 0.0], [0.0, 1.0, 0.0]):
        repeated = sampler(weights, (4, weights), (9, weights))
        assert starts(repeated, range(1, 30)) == starts(sampler(weights), range(1, 30))


shares = st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(any)


@settings(max_examples=examples(10))
@given(
    shares, st.lists(st.tuples(st.integers(1, 15), shares), max_size=4, unique_by=lambda x: x[0])
)
def test_a_source_goes_on_where_it_was_so_that_no_row_comes_twice(
    first: list[float], later: list[tuple[int, list[float]]]
) -> None:
    """16 steps are 96 rows, which no source is exhausted by; a source of 100 rows may pass over
    some in each of 5 turns, so that it begins anew."""
    seen = [x for x in starts(sampler(first, *sorted(later)), range(1, 17)) if x < 20_000]
    assert len(set(seen)) == len(seen)


def test_hosts_and_steps_are_read_in_any_order_across_a_phase() -> None:
    phases = (2, [1, 0, 1]), (3, [0, 1, 0])
    whole = sampler([1, 2, 0], *phases)
    for step in (4, 3, 2, 1, 400):
        fresh = sampler([1, 2, 0], *phases)
        halves = [fresh.rows(step, rows).inputs_BS for rows in (range(3, 6), range(3))][::-1]
        np.testing.assert_array_equal(
            np.concatenate(halves), whole.rows(step, range(BATCH)).inputs_BS
        )


@pytest.mark.parametrize(
    ("weights", "phases", "sentence"),
    [
        ([1, 0], [(3, [1, 0])], "has weight 0; make it positive, or leave the store out"),
        ([1, 1], [(3, [1, -1])], "has weight -1"),
        ([1, 1], [(3, [0, 0])], "nothing is left to sample from after step 3"),
    ],
)
def test_shares_that_cannot_be_are_refused(
    weights: list[float], phases: list[tuple[int, list[float]]], sentence: str
) -> None:
    with pytest.raises(WrongTokens, match=sentence):
        Sampler(list(zip(STORES[:2], weights, strict=True)), 5, BATCH, SEQ_LEN, phases=phases)


# ── The batch ────────────────────────────────────────────────────────────────────────────────


def test_batch_sizes_are_counted_step_by_step() -> None:
    grown = config({"at": 4, "train_batch_size": 6}, {"at": 9, "warmup": 2},
                   {"at": 20, "train_batch_size": 10})  # fmt: skip
    sizes = grown.batch_sizes
    by_hand = [2] * 4 + [6] * 16 + [10] * 10
    assert [sizes.at(step) for step in range(1, 31)] == by_hand
    assert [sizes.until(steps) for steps in range(31)] == [sum(by_hand[:n]) for n in range(31)]
    assert BatchSizes.of(grown.model_dump()) == sizes, "as a record has it"
    assert config().batch_sizes == BatchSizes((0,), (2,))


def test_each_part_of_a_batch_is_whole_in_each_phase() -> None:
    with pytest.raises(ValidationError, match="gradient_accumulation_steps 2 does not divide it"):
        config({"at": 9, "train_batch_size": 5}, gradient_accumulation_steps=2)


def test_a_growing_batch_goes_on_through_the_same_rows() -> None:
    sizes = BatchSizes((0, 3, 7), (2, 5, 12))
    for sources in (STORES[2], [(STORES[0], 3), (STORES[1], 1)]):
        plain, grown = (Sampler(sources, 5, by, SEQ_LEN, block=BLOCK) for by in (1, sizes))
        found = [
            start
            for step in range(1, 12)
            for start in grown.rows(step, range(sizes.at(step))).inputs_BS[:, 0].tolist()
        ]
        alone = [plain.rows(n, [0]).inputs_BS[0, 0] for n in range(1, sizes.until(11) + 1)]
        assert found == alone
    skipped = Sampler(STORES[2], 5, sizes, SEQ_LEN, skip=2)
    assert skipped.rows(4, range(5)).inputs_BS[:, 0].tolist() == [
        Sampler(STORES[2], 5, 1, SEQ_LEN).rows(n, [0]).inputs_BS[0, 0] for n in range(11, 16)
    ]


def test_shares_change_where_the_batch_does() -> None:
    sizes = BatchSizes((0, 4), (BLOCK, 2 * BLOCK))
    grown = Sampler([(STORES[0], 1), (STORES[1], 1)], 5, sizes, SEQ_LEN, block=BLOCK,
                    phases=[(6, [1, 3])], steps=10)  # fmt: skip
    for step in range(1, 11):
        starts = grown.rows(step, range(sizes.at(step))).inputs_BS[:, 0]
        second = np.mean(starts >= 10_000)
        assert second == (0.5 if step <= 6 else 0.75)
