import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data import arrays, packing
from engine.data.packing import PackedRows, best_fit, build
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore, WrongTokens

Document = list[int]
SEQ_LEN = 16


def store_of(lengths: list[int]) -> TokenStore:
    """Documents of these lengths, whose tokens count up through all of them."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(offsets[-1], dtype=np.uint16)
    return TokenStore.of(tokens, vocab_size=2**16, bytes_per_token=1.0, offsets=offsets)


def whole(rows: PackedRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs, targets, segments = rows.read(np.arange(len(rows)))
    assert segments is not None
    return inputs, targets, segments


lengths_of_documents = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(
    lambda lengths: max(lengths) > 1
)


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────


@given(lengths_of_documents)
def test_each_target_of_each_document_is_scored_once_and_none_crosses(lengths: list[int]) -> None:
    store = store_of(lengths)
    inputs, targets, _ = whole(PackedRows(store, SEQ_LEN))
    scored = targets >= 0
    np.testing.assert_array_equal(targets[scored], inputs[scored] + 1)  # the token after it
    firsts = {int(start) for start, n in zip(store.offsets, lengths, strict=False) if n}
    expected = sorted(set(range(sum(lengths))) - firsts)
    assert sorted(targets[scored].tolist()) == expected


@given(lengths_of_documents)
def test_segments_are_the_documents_of_a_row_from_1_and_0_is_padding(lengths: list[int]) -> None:
    store = store_of(lengths)
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    for inputs, targets, segments in zip(*whole(PackedRows(store, SEQ_LEN)), strict=True):
        used = segments > 0
        np.testing.assert_array_equal(used, targets >= 0)
        assert not inputs[~used].any()
        assert used[: used.sum()].all()  # padding comes last
        found = segments[used]
        assert found[0] == 1
        assert set(np.diff(found).tolist()) <= {0, 1}
        # A new segment is a new document or another piece of one; within it, all is one document.
        for segment in range(1, found[-1] + 1):
            tokens = inputs[segments == segment]
            assert len(set(document_of[tokens].tolist())) == 1
            np.testing.assert_array_equal(tokens, tokens[0] + np.arange(len(tokens)))


def test_a_long_document_is_cut_so_that_pieces_share_the_token_on_the_cut() -> None:
    inputs, targets, segments = whole(PackedRows(store_of([38]), SEQ_LEN))
    first, second, last = sorted(range(3), key=lambda row: inputs[row, 0])
    assert inputs[first].tolist() == list(range(16))
    assert targets[first].tolist() == list(range(1, 17))
    assert inputs[second].tolist() == list(range(16, 32))
    assert targets[last].tolist() == [33, 34, 35, 36, 37, *[-1] * 11]
    assert segments[last].tolist() == [1] * 5 + [0] * 11


def test_a_document_goes_where_it_leaves_the_least_room() -> None:
    pieces = [(0, 10), (100, 12), (200, 4), (300, 5), (400, 16), (500, 1)]
    assert list(best_fit(pieces, 16)) == [
        [(100, 12), (200, 4)],  # it would have fitted behind the 10, too
        [(400, 16)],
        [(0, 10), (300, 5), (500, 1)],
    ]


def test_the_fullest_of_too_many_open_rows_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "OPEN_ROWS", 2)
    rows = best_fit([(0, 9), (1, 12), (2, 10), (3, 7), (4, 6)], 16)
    assert next(rows) == [(1, 12)]  # (1, 4) would still have fitted
    assert list(rows) == [[(0, 9), (3, 7)], [(2, 10), (4, 6)]]


@given(st.lists(st.integers(1, 64), max_size=300))
def test_packing_loses_no_piece_and_no_row_is_too_long(sizes: list[int]) -> None:
    rows = list(best_fit(enumerate(sizes), 64))
    assert Counter(piece for row in rows for piece in row) == Counter(enumerate(sizes))
    assert all(sum(size for _, size in row) <= 64 for row in rows)
    # What begins a row fits into no open one, so two rows are never half empty both.
    assert sum(sum(size for _, size in row) <= 32 for row in rows) <= 1


def test_text_like_documents_leave_less_than_1_in_100_positions_empty() -> None:
    lengths = np.random.default_rng(0).lognormal(5.5, 1.2, 20_000).astype(int)
    rows = PackedRows(
        TokenStore.of(np.zeros(lengths.sum(), np.uint8), offsets=np.append(0, lengths.cumsum())),
        1024,
    )
    assert rows.manifest.targets > 0.99 * rows.manifest.rows * rows.manifest.seq_len
    assert rows.manifest.targets == (lengths[lengths > 0] - 1).sum()


# ── The index ────────────────────────────────────────────────────────────────────────────────

TEXTS = ["row, row, row your boat", "", "a", "gently down the stream", "merrily", "so"] * 20


@pytest.fixture
def on_disk(tmp_path: Path) -> TokenStore:
    return TokenStore.build(tmp_path / "store", TEXTS)


def test_the_index_beside_a_store_gives_the_rows_that_memory_gives(
    on_disk: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "TOGETHER", 7)  # many parts
    monkeypatch.setattr(arrays, "FILE", 64)
    monkeypatch.setattr(arrays, "PIECE", 16)
    manifest = build(on_disk, SEQ_LEN)
    loaded = on_disk.load()
    in_memory = TokenStore.of(loaded.tokens, offsets=loaded.offsets)
    monkeypatch.undo()
    theirs = PackedRows(in_memory, SEQ_LEN)
    ours = PackedRows(TokenStore.open(tmp_path / "store"), SEQ_LEN)
    assert ours.manifest == theirs.manifest == manifest
    for mine, other in zip(whole(ours), whole(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)
    scattered = np.array([5, 0, 5, len(ours) - 1])
    np.testing.assert_array_equal(ours.read(scattered).inputs_BS, whole(theirs)[0][scattered])
    assert build(on_disk, SEQ_LEN) == manifest  # again, in its place


def test_packed_batches_are_equal_for_any_hosts_and_each_row_comes_once_an_epoch(
    on_disk: TokenStore,
) -> None:
    count = build(on_disk, SEQ_LEN).rows
    sampler = Sampler(on_disk, 0, count, SEQ_LEN, packed=True)
    assert sampler.packed
    epoch = sampler.rows(2, range(count))
    by_row = [sampler.rows(2, [row]) for row in range(count)]
    for field in ("inputs_BS", "targets_BS", "segments_BS"):
        joined = np.concatenate([getattr(one, field) for one in by_row])
        np.testing.assert_array_equal(getattr(epoch, field), joined)
        rows = sorted(map(tuple, getattr(epoch, field).tolist()))
        in_order = getattr(PackedRows(on_disk, SEQ_LEN).read(np.arange(count)), field)
        assert rows == sorted(map(tuple, in_order.tolist()))


def test_packed_stores_mix(on_disk: TokenStore) -> None:
    build(on_disk, SEQ_LEN)
    other = TokenStore.of(np.full(90, 9, np.uint8), offsets=np.arange(0, 91, 9))
    sampler = Sampler([(on_disk, 3), (other, 1)], 0, 8, SEQ_LEN, packed=True, block=8)
    inputs, targets, segments = sampler.rows(5, range(8))
    assert segments is not None
    of_other = (targets == 9).any(axis=1)
    assert of_other.sum() == 2
    assert segments[of_other].max() == 2  # nine tokens have eight targets
    np.testing.assert_array_equal(inputs[of_other] == 9, segments[of_other] > 0)


def test_a_store_without_its_packing_is_refused(on_disk: TokenStore) -> None:
    build(on_disk, 32)
    with pytest.raises(WrongTokens, match=r"for seq_len 16; build it with .*build\(store, 16\)"):
        Sampler(on_disk, 0, 2, SEQ_LEN, packed=True)


def test_an_index_that_was_never_finished_is_none(
    on_disk: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(on_disk, SEQ_LEN)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(arrays.Growing, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        build(on_disk, SEQ_LEN)
    with pytest.raises(WrongTokens, match="no packing for seq_len 16"):
        PackedRows(on_disk, SEQ_LEN)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens_sha256": "0" * 64}, "of another store or version: its tokens_sha256 is 0000"),
        ({"offsets_sha256": "0" * 64}, "of another store or version: its offsets_sha256"),
        ({"seq_len": 32}, "its seq_len is 32 and not 16"),
        ({"algorithm": "first fit"}, "its algorithm is first fit and not best fit"),
        ({"rows": 7}, "the array ends .* its manifest says 8"),
        ({"rows": None}, "is not a packing's"),
    ],
)
def test_a_stale_or_foreign_index_is_refused(
    on_disk: TokenStore, tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    build(on_disk, SEQ_LEN)
    path = tmp_path / "store" / "packing-16" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(WrongTokens, match=sentence):
        PackedRows(on_disk, SEQ_LEN)


@pytest.mark.parametrize("array", ["ends", "starts", "lengths"])
def test_an_index_that_points_nowhere_is_refused(
    on_disk: TokenStore, tmp_path: Path, array: str
) -> None:
    made = build(on_disk, SEQ_LEN)
    folder = arrays.Folder(tmp_path / "store" / "packing-16")
    length = {"ends": made.rows + 1}.get(array, made.pieces)
    forged = folder.create(array, "uint32" if array == "lengths" else "uint64")
    forged.append(np.arange(length) + 10_000)
    forged.finish()
    rows = PackedRows(on_disk, SEQ_LEN)
    with pytest.raises(WrongTokens, match="that cannot be; build it again"):
        rows.read(np.arange(4))


def test_a_store_without_anything_to_predict_is_refused(tmp_path: Path) -> None:
    store = TokenStore.build(tmp_path, ["a", "b", ""])
    with pytest.raises(WrongTokens, match="has no document of 2 tokens or more"):
        build(store, SEQ_LEN)
    with pytest.raises(WrongTokens, match="has no folder for an index"):
        build(store_of([5]), SEQ_LEN)
