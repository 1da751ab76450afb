import itertools
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.sampling import Sampler, ahead, apportion, permute, within
from engine.data.token_store import Batch, TokenStore, WrongTokens
from engine.data.tokenize import train_bpe
from tests.examples import examples


def counting(length: int, first: int = 0) -> TokenStore:
    """Tokens that count up, so that a window shows where it was cut."""
    return TokenStore.of(
        np.arange(first, first + length), vocab_size=50_000, bytes_per_token=2.0 + (first > 0)
    )


def same(one: Batch, other: Batch) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


# ── The permutation ──────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
def test_a_permutation_reaches_each_place_once(size: int, key: int) -> None:
    np.testing.assert_array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@given(st.integers(1, 10**15), st.integers(0, 2**64 - 1), st.data())
def test_a_permutation_is_computed_at_one_position_alone(
    size: int, key: int, draw: st.DataObject
) -> None:
    places = np.array(draw.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5)))
    together = permute(places, size, key)
    assert ((together >= 0) & (together < size)).all()
    assert together.tolist() == [permute(place, size, key).item() for place in places.tolist()]


def test_sizes_and_keys_may_differ_from_place_to_place() -> None:
    sizes, keys = np.array([3, 1000, 10**12]), np.array([5, 6, 7])
    singly = [
        permute(2, n, key).item() for n, key in zip(sizes.tolist(), keys.tolist(), strict=True)
    ]
    assert permute(2, sizes, keys).tolist() == singly


@pytest.mark.parametrize("size", [2, 3, 7, 16, 17])
def test_a_permutation_moves_each_position_everywhere_equally_often(size: int) -> None:
    """χ² over 4,000 keys; 5 standard deviations of it would be bad luck once in a million."""
    keys = np.arange(4000)
    for place in range(size):
        seen = np.bincount(permute(place, size, keys), minlength=size)
        expected = len(keys) / size
        chi2 = ((seen - expected) ** 2 / expected).sum()
        assert chi2 < (size - 1) + 5 * np.sqrt(2 * (size - 1)) + 10


def test_neighbours_do_not_stay_together() -> None:
    """Of places that follow each other, 1 in N goes on to the next place, whatever the seed."""
    size = 1000
    follow = [int((np.diff(permute(np.arange(size), size, key)) == 1).sum()) for key in range(200)]
    assert 0.8 < np.mean(follow) < 1.2


def test_the_order_never_changes() -> None:
    """These figures are the order that finished runs have seen. Do not adapt them."""
    assert permute(np.arange(10), 10, 0).tolist() == PERMUTED
    sampler = Sampler([(counting(2001), 3), (counting(701, 10_000), 1)], 7, 8, 10)
    assert sampler.rows(1, range(8)).inputs_BS[:, 0].tolist() == STEP_1
    assert sampler.rows(1000, range(8)).inputs_BS[:, 0].tolist() == STEP_1000


PERMUTED = [1, 0, 9, 3, 5, 6, 2, 8, 7, 4]
STEP_1 = [1400, 550, 480, 900, 470, 1560, 1220, 1170]
STEP_1000 = [10340, 1380, 10310, 520, 10040, 460, 1310, 100]


# ── Batches ──────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_windows_and_the_tokens_after_them() -> None:
    inputs_BS, targets_BS, segments_BS = Sampler(counting(1000), 0, 16, 8).rows(3, range(16))
    assert inputs_BS.shape == targets_BS.shape == (16, 8)
    assert inputs_BS.dtype == targets_BS.dtype == np.int32
    np.testing.assert_array_equal(inputs_BS, inputs_BS[:, :1] + np.arange(8))
    np.testing.assert_array_equal(targets_BS, inputs_BS + 1)
    assert segments_BS is None


def mixture_of(drawn: list[tuple[int, int]]) -> list[tuple[TokenStore, float]]:
    return [(counting(length, 1000 * i), weight) for i, (length, weight) in enumerate(drawn)]


lengths_and_weights = st.tuples(st.integers(9, 500), st.integers(1, 100))
mixtures = st.lists(lengths_and_weights, min_size=1, max_size=4).map(mixture_of)


@settings(max_examples=examples(10))
@given(mixtures, st.integers(-(2**63), 2**64), st.integers(1, 10**12), st.integers(1, 4))
def test_batches_are_equal_for_1_2_and_8_hosts_and_after_any_resume(
    mixture: list[tuple[TokenStore, float]], seed: int, step: int, rows_of_each: int
) -> None:
    batch_size = 8 * rows_of_each
    sampler = Sampler(mixture, seed, batch_size, 8)
    whole = sampler.rows(step, range(batch_size))
    for hosts in (2, 8):
        share = batch_size // hosts
        parts = []
        for host in reversed(range(hosts)):  # each begins here, with nothing but seed and step
            fresh = Sampler(mixture, seed, batch_size, 8)
            parts.insert(0, fresh.rows(step, range(host * share, (host + 1) * share)))
        for field in ("inputs_BS", "targets_BS"):
            joined = np.concatenate([getattr(part, field) for part in parts])
            np.testing.assert_array_equal(joined, getattr(whole, field))
    backwards = sampler.rows(step, range(batch_size)[::-1])
    np.testing.assert_array_equal(backwards.inputs_BS[::-1], whole.inputs_BS)


def test_rows_are_numbered_through_so_that_the_batch_size_only_cuts_them() -> None:
    tokens = counting(5000)
    wide, narrow = Sampler(tokens, 0, 12, 8), Sampler(tokens, 0, 4, 8)
    three = [narrow.rows(step, range(4)).inputs_BS for step in (4, 5, 6)]
    np.testing.assert_array_equal(wide.rows(2, range(12)).inputs_BS, np.concatenate(three))


def test_batches_that_are_passed_over_come_before_the_first_step() -> None:
    mixture = [(counting(2001), 3), (counting(701, 10_000), 1)]
    whole = Sampler(mixture, 7, 8, 10, phases=[(30, [1, 1])])
    later = Sampler(mixture, 7, 8, 10, phases=[(10, [1, 1])], skip=20)
    for step in (1, 10, 11, 50):
        seen, expected = (of.rows(at, range(8)) for of, at in ((later, step), (whole, step + 20)))
        np.testing.assert_array_equal(seen.inputs_BS, expected.inputs_BS)
        assert later.bytes_per_token(step) == whole.bytes_per_token(step + 20)


def starts(sampler: Sampler, epoch: int) -> list[int]:
    """Where the windows of the epoch begin, if a batch is an epoch."""
    return sampler.rows(epoch, range(sampler.batch_sizes.at(epoch))).inputs_BS[:, 0].tolist()


@pytest.mark.parametrize("spare", [0, 1, 7])
def test_an_epoch_has_each_window_once_and_the_next_one_another_order(spare: int) -> None:
    windows = [8 * i for i in range(40)]
    tokens = counting(40 * 8 + 1 + spare)
    sampler = Sampler(tokens, 0, 40, 8)
    first, second = starts(sampler, 1), starts(sampler, 2)
    assert sorted(first) == sorted(second) == windows
    assert first != windows
    assert first != second
    assert first != starts(Sampler(tokens, 1, 40, 8), 1)
    targets = sampler.rows(1, range(40)).targets_BS
    assert sorted(targets.ravel().tolist()) == list(range(1, 321))  # each token once


def test_a_store_and_an_array_give_the_same_batches(tmp_path: Path) -> None:
    text = "gently down the stream, merrily, merrily\n" * 50
    on_disk = Sampler(TokenStore.build(tmp_path, [text]), 0, 8, 16)
    in_memory = Sampler(np.frombuffer(text.encode(), np.uint8), 0, 8, 16)
    for step in (1, 2, 77):
        same(on_disk.rows(step, range(8)), in_memory.rows(step, range(8)))
    assert (on_disk.vocab_size, on_disk.bytes_per_token(1)) == (256, 1.0)
    assert (in_memory.vocab_size, in_memory.bytes_per_token(1)) == (256, 1.0)


# ── Mixtures ─────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), st.integers(1, 2000))
def test_shares_are_whole_and_next_to_the_weights(weights: list[float], total: int) -> None:
    counts = apportion(weights, total)
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1 + 1e-6


def test_the_rest_goes_to_the_largest_remainders() -> None:
    assert apportion([1, 1, 1], 8) == [3, 3, 2]
    assert apportion([5, 3, 2], 10) == [5, 3, 2]
    assert apportion([0.5, 0.25, 0.25], 1024) == [512, 256, 256]
    assert apportion([4.6, 3.3, 2.1], 10) == [5, 3, 2]


def test_a_mixture_has_its_weights_exactly_in_each_block() -> None:
    mixture = [(counting(900), 5), (counting(170, 10_000), 3), (counting(50, 20_000), 2)]
    sampler = Sampler(mixture, 0, batch_size=20, seq_len=8, block=50)
    assert sampler.block_counts == [25, 15, 10]
    orders = set()
    for block in range(20):
        sources = [
            int(sampler.rows(n // 20 + 1, [n % 20]).inputs_BS[0, 0]) // 10_000
            for n in range(50 * block, 50 * (block + 1))
        ]
        assert Counter(sources) == {0: 25, 1: 15, 2: 10}
        orders.add(tuple(sources))
    assert len(orders) == 20
    assert sampler.bytes_per_token(1) == pytest.approx((25 * 2 + 25 * 3) / 50)


def test_each_source_of_a_mixture_goes_through_its_own_epochs() -> None:
    mixture = [(counting(8 * 30 + 1), 3), (counting(8 * 7 + 1, 10_000), 1)]
    sampler = Sampler(mixture, 0, batch_size=16, seq_len=8, block=16)
    seen = np.concatenate([sampler.rows(step, range(16)).inputs_BS[:, 0] for step in range(1, 121)])
    # A source's rows in the order of its own count: the blocks hold 12 and 4 of them.
    for first, windows, of_block in ((0, 30, 12), (10_000, 7, 4)):
        here = [start - first for start in seen.tolist() if start // 10_000 == first // 10_000]
        counts = Counter(here)
        assert set(counts) == {8 * i for i in range(windows)}
        assert len(here) == 120 * of_block
        assert max(counts.values()) - min(counts.values()) <= 1


def test_what_is_beyond_the_most_goes_to_the_others_by_their_weights() -> None:
    assert within([50, 30, 20], [5, 3, 2], [10, 1000, 1000]) == [10, 54, 36]
    assert within([50, 30, 20], [5, 3, 2], [10.9, 40, 1000]) == [10, 40, 50]
    assert within([50, 50, 0], [1, 1, 0], [20, 1000, 1000]) == [20, 80, 0], "0 stays 0"
    with pytest.raises(WrongTokens, match=r"has 70.0% of the tokens that the run needs"):
        within([50, 50], [1, 1], [40, 30])
    with pytest.raises(WrongTokens, match=r"less than one row in each block of 100"):
        within([50, 50], [1, 1], [0.8, 1000])
    with pytest.raises(WrongTokens, match=r"has 99.0% of the tokens"):
        within([1, 0], [1, 0], [0.99, 5])


def test_no_epoch_begins_beyond_the_most_of_a_source_also_over_phases() -> None:
    long, short = counting(20_001), counting(401, first=100)  # 2,000 and 40 rows
    sampler = Sampler(
        [(long, 1), (short, 1)],
        *(0, 8, 10),
        phases=[(100, [1, 3]), (200, [3, 1])],
        steps=300,
        most_epochs=[float("inf"), 2.5],
    )
    read = Counter[int]()
    for step in range(1, 301):
        source_B, row_B = sampler.places(step, np.arange(8))
        read.update(row_B[source_B == 1].tolist())
    assert sum(read.values()) <= 100
    assert sum(read.values()) > 60, "and most of that is used: whole blocks are counted"
    assert max(read.values()) == 3


def test_stores_of_different_tokenizers_do_not_mix(tmp_path: Path) -> None:
    lines = ["row, row, row your boat"] * 9
    one = TokenStore.build(tmp_path / "a", lines, train_bpe(lines, 266))
    other = TokenStore.build(tmp_path / "b", lines, train_bpe(lines, 264))
    for second in (other, TokenStore.of(np.zeros(99, np.uint8))):
        with pytest.raises(WrongTokens, match=r"a and .* were made by different tokenizers"):
            Sampler([(one, 1), (second, 1)], 0, 2, 8)
    assert Sampler([(one, 1), (one, 2)], 0, 2, 8).vocab_size == 266


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(WrongTokens, match=f"a store in memory has weight {weight}"):
        Sampler([(counting(100), 1), (counting(100), weight)], 0, 2, 8)


def test_a_weight_without_a_row_in_a_block_is_refused_with_a_block_that_would_do() -> None:
    mixture = [(counting(100), 1000), (counting(100), 0.2)]
    with pytest.raises(WrongTokens, match=r"weight 0.2 of 1000.2, .* make blocks of at least 5002"):
        Sampler(mixture, 0, 2, 8)
    assert Sampler(mixture, 0, 2, 8, block=5002).block_counts == [5001, 1]


def test_impossible_samplings_are_refused() -> None:
    Sampler(np.zeros(9, np.uint8), 0, 2, 8).rows(1, range(2))
    with pytest.raises(WrongTokens, match="8 tokens and a window of seq_len 8 needs 9"):
        Sampler(np.zeros(8, np.uint8), 0, 2, 8)
    with pytest.raises(WrongTokens, match="nothing to sample from"):
        Sampler([], 0, 2, 8)
    with pytest.raises(ValueError, match="there is no step 0; the first is 1"):
        Sampler(np.zeros(9, np.uint8), 0, 2, 8).rows(0, range(2))


# ── Reading ahead ────────────────────────────────────────────────────────────────────────────


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def settled(read: list[int], count: int) -> list[int]:
    """What has been read, once it is `count` or has had every chance to be more."""
    for _ in range(200):
        if len(read) > count:
            break
        time.sleep(0.001)
    return read


def test_two_steps_are_read_ahead_and_no_more() -> None:
    read: list[int] = []
    with closing(ahead(lambda step: read.append(step) or 10 * step, range(4, 10))) as batches:
        assert next(batches) == 40
        assert settled(read, 3) == [4, 5, 6]
        assert next(batches) == 50
        assert settled(read, 4) == [4, 5, 6, 7]
        assert list(batches) == [60, 70, 80, 90]
    assert read == [4, 5, 6, 7, 8, 9]
    assert not readers()


def test_reading_is_done_by_one_other_thread() -> None:
    threads = set(ahead(lambda _: threading.get_ident(), range(5)))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_an_error_comes_at_its_own_step() -> None:
    def read(step: int) -> int:
        if step == 3:
            raise WrongTokens("a piece is missing")
        return step

    batches = ahead(read, range(1, 9))
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(WrongTokens, match="a piece is missing"):
        next(batches)
    assert not readers()


def test_leaving_early_ends_the_thread_after_the_step_it_is_at() -> None:
    read, at_2, go_on = list[int](), threading.Event(), threading.Event()

    def wait_at_2(step: int) -> int:
        if step == 2:
            at_2.set()
            go_on.wait(60)
        read.append(step)
        return step

    with closing(ahead(wait_at_2, itertools.count(1))) as batches:  # which would go on for ever
        assert next(batches) == 1
        assert at_2.wait(60)
        assert readers()
        threading.Timer(0.05, go_on.set).start()  # while it is being closed
    assert not readers()
    assert read == [1, 2]


def test_reading_ahead_of_nothing_yields_nothing() -> None:
    assert list(ahead(str, [])) == []
    assert list(ahead(str, [7])) == ["7"]
