import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts

from engine.data import arrays, token_store
from engine.data.lab_texts import Text
from engine.data.sampling import Sampler
from engine.data.scored_windows import validation_windows
from engine.data.token_store import Manifest, TokenStore, WrongTokens
from engine.data.tokenize import byte_tokenizer, train_bpe

DOCUMENTS = ["row, row, row your boat\n", "", "gently down the stream 🚣\n", "merrily\n"] * 8
BPE = train_bpe(DOCUMENTS, 290)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of many files, each of several pieces, and more than one call of the tokenizer."""
    monkeypatch.setattr(arrays, "FILE", 64)
    monkeypatch.setattr(arrays, "PIECE", 16)
    monkeypatch.setattr(token_store, "FILE", 48)
    monkeypatch.setattr(token_store, "TOGETHER", 60)


# ── Building and reading ─────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("place", ["folder", "memory://bucket/tokens"])
def test_a_store_gives_back_its_documents_wherever_it_lies(tmp_path: Path, place: str) -> None:
    where = place if "://" in place else tmp_path / place
    TokenStore.build(where, iter(DOCUMENTS), BPE)
    store = TokenStore.open(where)
    store.verify()
    offsets = np.concatenate(list(store.offsets_in_parts())).astype(int)
    assert len(offsets) == len(DOCUMENTS) + 1
    for text, start, end in zip(DOCUMENTS, offsets[:-1], offsets[1:], strict=True):
        *ids, last = store.read(slice(start, end))
        assert last == BPE.end_of_document
        assert ids == BPE.encode_batch([text])[0].tolist()
    whole = "".join(DOCUMENTS)
    assert store.manifest.bytes == len(whole.encode())
    assert (store.manifest.documents, store.manifest.dtype) == (32, "uint16")
    assert store.manifest.bytes_per_token == len(whole.encode()) / offsets[-1]
    assert store.tokenizer().sha256 == BPE.sha256
    loaded = store.load()
    assert isinstance(loaded.tokens, np.ndarray)
    np.testing.assert_array_equal(loaded.tokens, store.read(slice(None)))


def test_the_digest_of_byte_tokens_is_the_texts(tmp_path: Path, text: Text) -> None:
    store = TokenStore.build(tmp_path, [text.train.decode()])
    assert store.manifest.tokens_sha256 == text.train_sha256
    assert store.read(slice(None)).tobytes() == text.train
    in_memory = TokenStore.of(np.frombuffer(text.train, np.uint8)).manifest
    assert in_memory.tokens_sha256 == text.train_sha256
    assert in_memory.tokenizer_sha256 == store.manifest.tokenizer_sha256


@pytest.mark.usefixtures("small_files")
def test_documents_are_written_while_they_come(tmp_path: Path) -> None:
    def watched() -> Iterator[str]:
        for number in range(10):
            assert len(list(tmp_path.glob("tokens/c/*"))) >= number - 1
            yield "x" * 64

    assert TokenStore.build(tmp_path, watched()).manifest.tokens == 640


def test_an_unfinished_store_is_none_and_is_built_anew(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "a" * 2**23
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(tmp_path, broken())
    assert list(tmp_path.glob("tokens/c/*"))
    with pytest.raises(WrongTokens, match="or it was never finished"):
        TokenStore.open(tmp_path)
    store = TokenStore.build(tmp_path, ["other"])
    assert store.read(slice(None)).tobytes() == b"other"
    with pytest.raises(WrongTokens, match="already holds a token store"):
        TokenStore.build(tmp_path, ["again"])


def test_the_type_is_the_smallest_that_holds_the_vocabulary() -> None:
    sizes = [1, 256, 257, 2**16, 2**16 + 1, 2**31]
    assert [token_store.smallest_dtype(size) for size in sizes] == [
        *["uint8"] * 2,
        *["uint16"] * 2,
        *["uint32"] * 2,
    ]


def test_documents_without_tokens_are_refused(tmp_path: Path) -> None:
    for documents in ([], ["", ""]):
        with pytest.raises(WrongTokens, match="have no tokens"):
            TokenStore.build(tmp_path, documents)


# ── In memory ────────────────────────────────────────────────────────────────────────────────


def test_an_array_of_other_than_bytes_needs_its_vocabulary() -> None:
    tokens = np.array([0, 300, 7])
    with pytest.raises(WrongTokens, match="tokens of type int64 are no bytes; say their vocab"):
        TokenStore.of(tokens)
    with pytest.raises(WrongTokens, match="ids below 300"):
        TokenStore.of(tokens, vocab_size=300, bytes_per_token=2.0)
    with pytest.raises(WrongTokens, match="ids below 301"):
        TokenStore.of(-tokens, vocab_size=301, bytes_per_token=2.0)
    store = TokenStore.of(tokens, vocab_size=301, bytes_per_token=2.0)
    store.verify()
    assert (store.manifest.dtype, store.manifest.bytes_per_token) == ("uint16", 2.0)


# ── What is refused ──────────────────────────────────────────────────────────────────────────


def edit(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    TokenStore.build(tmp_path / "store", DOCUMENTS, BPE)
    return tmp_path / "store"


def test_other_digests_than_asked_for_are_refused(built: Path) -> None:
    found = TokenStore.open(built).manifest
    asked = {"tokens_sha256": found.tokens_sha256, "tokenizer_sha256": BPE.sha256}
    TokenStore.open(built, **asked, source_sha256=found.source_sha256)
    for name in ("tokens", "tokenizer", "source"):
        with pytest.raises(WrongTokens, match=f"has a {name} with SHA-256 .* and not {'0' * 64}"):
            TokenStore.open(built, **{**asked, f"{name}_sha256": "0" * 64})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": 2}, "format 2 and this version reads 1"),
        ({"tokens": 5}, "the array tokens .* has [0-9,]+ values .* its manifest says 5 of uint16"),
        ({"documents": 33}, "the array offsets .* has 33 values .* its manifest says 34"),
        ({"dtype": "uint8"}, "290 ids in uint8, which cannot hold them"),
        ({"dtype": "uint32"}, "values of type uint16 .* of uint32"),
        ({"dtype": "float32"}, "not a token store's: dtype"),
        ({"tokens": "many"}, "not a token store's: tokens"),
        ({"more": 1}, "not a token store's: more"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    built: Path, changes: dict[str, object], sentence: str
) -> None:
    edit(built, **changes)
    with pytest.raises(WrongTokens, match=sentence):
        TokenStore.open(built)


def test_a_folder_that_is_no_token_store_is_refused(built: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", "memory://nowhere/at/all"):
        with pytest.raises(WrongTokens, match="there is no token store at"):
            TokenStore.open(place)
    for content, where in ((b"{", "its form"), (b"[]", "its form"), (b"{}", "version")):
        (built / "manifest.json").write_bytes(content)
        with pytest.raises(WrongTokens, match=f"not a token store's: {where}"):
            TokenStore.open(built)


def test_an_unusable_place_for_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongTokens, match="nowhere://x is no place for tokens"):
        TokenStore.open("nowhere://x")
    (tmp_path / "file").touch()
    with pytest.raises(WrongTokens, match=r"tokens of .* cannot be written: .*; look into"):
        TokenStore.build(tmp_path / "file", ["text"])


def test_a_store_without_one_of_its_arrays_is_refused(built: Path) -> None:
    (built / "offsets" / "zarr.json").unlink()
    with pytest.raises(WrongTokens, match="has no array offsets that can be read"):
        TokenStore.open(built)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("damage", ["a byte", "half", "gone"])
def test_a_damaged_piece_is_an_error_and_never_zeros(tmp_path: Path, damage: str) -> None:
    TokenStore.build(tmp_path, ["\0" * 200])
    file = tmp_path / "tokens" / "c" / "1"
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content if damage == "a byte" else content[:40])
    store = TokenStore.open(tmp_path)  # which reads no tokens
    assert not store.read(np.arange(64)).any()
    for read_all in (store.verify, store.load):
        with pytest.raises(WrongTokens, match=r"tokens of the store at .* is truncated or damaged"):
            read_all()
    with pytest.raises(WrongTokens, match="truncated or damaged"):
        store.read(np.array([64]))


def test_going_through_it_finds_what_checksums_cannot(built: Path, tmp_path: Path) -> None:
    other = [*DOCUMENTS[:-1], "cheerily\n"]
    TokenStore.build(tmp_path / "other", other, BPE)
    for array, sentence in (("offsets", "offsets"), ("tokens", "tokens")):
        found = json.loads((tmp_path / "other" / "manifest.json").read_text())
        edit(tmp_path / "other", **{f"{array}_sha256": "0" * 64})
        store = TokenStore.open(tmp_path / "other")
        for read_all in (store.verify, store.load):
            with pytest.raises(WrongTokens, match=f"the {sentence} of .* have SHA-256"):
                read_all()
        edit(tmp_path / "other", **found)
    edit(built, vocab_size=280)
    with pytest.raises(WrongTokens, match=r"has a token with id 28\d and its tokenizer only 280"):
        TokenStore.open(built).verify()
    with pytest.raises(WrongTokens, match=r"has a token with id 28\d and its tokenizer only 280"):
        TokenStore.open(built).read(slice(None))


@pytest.mark.parametrize("offsets", [[0, 5, 3, 9], [0, 5, 3, 3, 9], [1, 9], [0, 8], [0, 10]])
def test_documents_that_do_not_follow_each_other_are_refused(
    offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "FILE", 2)  # so that some go back from one part to the next
    with pytest.raises(WrongTokens, match="the documents of a store in memory"):
        TokenStore.of(np.zeros(9, np.uint8), offsets=np.array(offsets))


def test_another_tokenizer_beside_the_store_is_refused(built: Path) -> None:
    byte_tokenizer().save(built / "tokenizer.json")
    with pytest.raises(WrongTokens, match=r"tokenizer\.json of .* has SHA-256"):
        TokenStore.open(built).tokenizer()
    (built / "tokenizer.json").unlink()
    with pytest.raises(WrongTokens, match=r"has no tokenizer\.json"):
        TokenStore.open(built).tokenizer()


# ── 100 billion tokens ───────────────────────────────────────────────────────────────────────

HUGE = 10**11


def sparse(place: Path) -> TokenStore:
    """A store of HUGE tokens in 10^8 documents, of which no file exists but the metadata."""
    folder = arrays.Folder(place)
    for name, dtype, length in (("tokens", "uint16", HUGE), ("offsets", "uint64", 10**8 + 1)):
        array = folder.create(name, dtype)._array
        array.resize(exclusive_max=[length], resize_metadata_only=True).result()
    manifest = Manifest(
        version=token_store.VERSION,
        tokens=HUGE,
        documents=10**8,
        bytes=4 * HUGE,
        dtype="uint16",
        vocab_size=50_257,
        end_of_document=None,
        source_sha256="0" * 64,
        tokenizer_sha256="0" * 64,
        tokens_sha256="0" * 64,
        offsets_sha256="0" * 64,
    )
    folder.write("manifest.json", manifest.model_dump_json().encode())
    return TokenStore.open(place)


def test_100_billion_tokens_are_opened_and_read_without_taking_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch, seq_len, steps = 16, 1024, (1, 2, 10**6)
    written = sparse(tmp_path)
    sampler = Sampler(written, seed=0, batch_size=batch, seq_len=seq_len)
    to_write = ts.open(written.tokens.spec(), open=True, write=True).result()
    for step in steps:  # only what these steps read is there
        for row in sampler.places(step, np.arange(batch))[1].tolist():
            window = slice(row * seq_len, row * seq_len + seq_len + 1)
            tokens = np.arange(window.start, window.stop) % 50_257
            to_write[window].write(tokens.astype(np.uint16)).result()

    before = memory(), bytes_read()
    began = time.perf_counter()
    store = TokenStore.open(tmp_path)
    opened = time.perf_counter() - began
    assert store.manifest.tokens == HUGE
    assert bytes_read() - before[1] < 10_000  # the manifest and two pages of metadata
    sampler = Sampler(store, seed=0, batch_size=batch, seq_len=seq_len)
    for step in steps:
        inputs_BS, targets_BS, _ = sampler.rows(step, range(batch))
        starts_B = sampler.places(step, np.arange(batch))[1] * seq_len
        assert starts_B.max() > HUGE / 2
        expected = (starts_B[:, None] + np.arange(seq_len + 1)) % 50_257
        np.testing.assert_array_equal(inputs_BS, expected[:, :-1])
        np.testing.assert_array_equal(targets_BS, expected[:, 1:])
    took = time.perf_counter() - began
    grown, read = memory() - before[0], bytes_read() - before[1]
    with capsys.disabled():
        print(
            f"\n100 billion tokens: opened in {opened * 1e3:.1f} ms; 3 batches of 16 × 1,024 after "
            f"{took * 1e3:.0f} ms, {read / 2**20:.1f} MB read, {grown / 2**20:.1f} MB of memory"
        )
    assert grown < 2**26
    # At most two pieces a row, each with the index of its file.
    assert read < len(steps) * batch * 2 * (
        2 * arrays.PIECE + 16 * arrays.FILE // arrays.PIECE + 99
    )
    with pytest.raises(WrongTokens, match="truncated or damaged"):
        sampler.rows(3, range(batch))


def memory() -> int:
    """Bytes of memory that this process holds, or has held at most where only that is told."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def bytes_read() -> int:
    metrics = ts.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read")
    return metrics[0]["values"][0]["value"] if metrics else 0


# ── Validation ───────────────────────────────────────────────────────────────────────────────


def test_validation_windows_spread_over_the_split_and_share_no_target() -> None:
    tokens = np.arange(100, dtype=np.uint8)
    windows, mask, _ = validation_windows(tokens, seq_len=8, num_targets=36)
    assert windows.shape == (5, 9)
    assert windows.dtype == np.int32
    assert mask.sum() == 36
    assert mask[:4].all()
    assert (windows[0, 0], windows[-1, -1]) == (0, 99)
    assert len(np.unique(windows[:, 1:])) == 40
    gaps = np.diff(windows[:, 0])
    assert gaps.max() - gaps.min() <= 1


def test_validation_windows_of_a_store_are_those_of_its_array(built: Path) -> None:
    store = TokenStore.open(built)
    for ours, theirs in zip(
        validation_windows(store, 16, 100)[:2],
        validation_windows(store.load().tokens, 16, 100)[:2],
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_validation_may_use_up_the_split_but_no_more() -> None:
    windows = validation_windows(np.arange(41, dtype=np.uint8), 8, 40).tokens_NW
    np.testing.assert_array_equal(np.unique(windows[:, 1:]), np.arange(1, 41))
    with pytest.raises(WrongTokens, match="has 40 tokens and 40 targets in windows of 8 need 41"):
        validation_windows(np.arange(40, dtype=np.uint8), 8, 40)
