"""What the lab has signed is told from what it has not, and a forgery by what is wrong with it."""

import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.publish import signing
from runner.publish.signing import BadKey, Forged, Receipt
from runner.schema import record
from runner.schema.plan_fingerprint import fingerprint
from runner.store.store import Store
from tests import synthetic

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def key(tmp_path: Path) -> signing.Key:
    return signing.make_key(tmp_path / "lab.pem")


@pytest.fixture
def keys(key: signing.Key) -> dict[str, bytes]:
    return signing.read_published(signing.published([key.public]))


def receipt(store: Store) -> Receipt:
    """A finished execution of a sealed question, with fingerprints that are its own."""
    predictions = [synthetic.prediction(), synthetic.prediction("2.0 ± 0.2", versus=None)]
    seal = synthetic.preregister(store, 1, predictions=predictions)
    plan = synthetic.plan(preregistration=1, predictions=predictions)
    plan = plan.model_copy(update={"seal": seal.seal})
    plan = plan.model_copy(update={"fingerprint": fingerprint(plan)})
    execution = synthetic.execution(plan)
    runs = synthetic.finish(store, execution, synthetic.PLAIN)
    result = record.require(store, f"executions/{execution.id}/result", record.Result)
    named = {record.run_name(run.arm, run.seed): run for run in runs}
    return Receipt(execution=execution, seal=seal, runs=named, result=result)


@pytest.fixture
def true_receipt(tmp_path: Path) -> Receipt:
    return receipt(Store(tmp_path / "store"))


def signed(key: signing.Key, found: Receipt) -> bytes:
    return signing.sign(key, found)


def test_valid_signed_files_are_accepted(
    key: signing.Key, keys: dict[str, bytes], true_receipt: Receipt
) -> None:
    assert true_receipt.seal
    plan = record.PlanRecord(
        repository=7, pull=2, n=1, commit="a" * 40, at=NOW, plan=true_receipt.execution.plan
    )
    files: list[tuple[signing.Kind, signing.Signable]] = [
        ("receipt", true_receipt),
        ("seal", true_receipt.seal),
        ("plan", plan),
        ("plan", plan.model_copy(update={"plan": None, "problems": ("no arms",)})),
    ]
    for kind, found in files:
        content = signing.sign(key, found)
        verified = signing.verify(content, keys)
        assert (verified.kind, verified.record) == (kind, found.model_dump(mode="json"))
        assert verified.key == key.id
        assert content == signing.sign(key, found)


def changed(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    file = json.loads(content)
    change(file)
    return json.dumps(file).encode()


def better(found: Receipt) -> Receipt:
    """With one figure that is better than it was."""
    run = found.runs["fast.s0"]
    assert run.evaluated
    evaluated = run.evaluated.model_copy(update={"bpb": 0.1})
    runs = found.runs | {"fast.s0": run.model_copy(update={"evaluated": evaluated})}
    return found.model_copy(update={"runs": runs})


FORGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda file: file[:-200], "not JSON"),
    "not signed at all": (lambda _: b'{"runs": []}', "not a file that a lab has signed"),
    "a figure changed": (
        lambda file: changed(
            file, lambda f: f["record"]["runs"]["fast.s0"]["evaluated"].update(bpb=0.1)
        ),
        "the record was changed",
    ),
    "a figure and the digest changed": (
        lambda file: changed(
            file,
            lambda f: (
                f["record"]["result"].update(why="ours"),
                f.update(sha256=Receipt.model_validate(f["record"]).digest()),
            ),
        ),
        "the signature is not the lab's",
    ),
    "another record's signature": (
        lambda file: changed(file, lambda f: f.update(signature="AAAA" * 21 + "AA==")),
        "the signature is not the lab's",
    ),
    "no signature": (
        lambda file: changed(file, lambda f: f.update(signature="")),
        "the signature is not the lab's",
    ),
    "another execution's place": (
        lambda file: changed(file, lambda f: f.update(path="executions/x0/result")),
        "the signature is not the lab's",
    ),
    "called a plan": (lambda file: changed(file, lambda f: f.update(kind="plan")), "record"),
    "a record before the true one, for who reads the first": (
        lambda file: b'{"record":{"bpb":0.1},' + file[1:],
        "'record' stands twice",
    ),
    "a figure before the true one": (
        lambda file: file.replace(b'"bpb":', b'"bpb":0.1,"bpb":', 1),
        "'bpb' stands twice",
    ),
    "a kind that is no word": (lambda file: changed(file, lambda f: f.update(kind=[])), "kind"),
    "a key that is not the lab's": (
        lambda file: changed(file, lambda f: f.update(key="0" * 16)),
        "none of the lab's keys",
    ),
    "a field too many": (lambda file: changed(file, lambda f: f.update(note="x")), "note"),
    "a record's field too many": (
        lambda file: changed(file, lambda f: f["record"].update(note="x")),
        r"record\.note",
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_file_is_refused_by_what_is_wrong_with_it(
    how: str, key: signing.Key, keys: dict[str, bytes], true_receipt: Receipt
) -> None:
    forge, words = FORGED[how]
    with pytest.raises(Forged, match=words):
        signing.verify(forge(signed(key, true_receipt)), keys)


def _without_seal(found: Receipt) -> Receipt:
    return found.model_copy(update={"seal": None})


def _other_plan(found: Receipt) -> Receipt:
    plan = found.execution.plan.model_copy(update={"seeds": (0, 1)})
    return found.model_copy(update={"execution": found.execution.model_copy(update={"plan": plan})})


def _other_verdicts(found: Receipt) -> Receipt:
    turned = [x.model_copy(update={"outcome": "confirmed"}) for x in found.result.verdicts]
    return found.model_copy(
        update={"result": found.result.model_copy(update={"verdicts": tuple(turned)})}
    )


def _swapped(found: Receipt) -> Receipt:
    runs = dict(found.runs)
    runs["fast.s0"], runs["fast.s1"] = runs["fast.s1"], runs["fast.s0"]
    return found.model_copy(update={"runs": runs})


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (better, "verdicts do not follow"),
        (_without_seal, "not the seal that the plan names"),
        (_other_plan, "fingerprint is not that of the plan"),
        (_other_verdicts, "verdicts do not follow"),
        (_swapped, "fast.s0 is another run"),
    ],
)
def test_a_record_that_contradicts_itself_is_not_valid_even_if_signed(
    lie: Callable[[Receipt], Receipt],
    words: str,
    key: signing.Key,
    keys: dict[str, bytes],
    true_receipt: Receipt,
) -> None:
    with pytest.raises(Forged, match=words):
        signing.verify(signed(key, lie(true_receipt)), keys)


def test_a_seal_holds_the_text_whose_digest_it_names(
    key: signing.Key, keys: dict[str, bytes], true_receipt: Receipt
) -> None:
    assert true_receipt.seal
    text = "Warmer is better\nas it was read"
    digest = synthetic.sha(text)
    seal = true_receipt.seal.model_copy(update={"text": text, "text_sha256": digest})
    signing.verify(signing.sign(key, seal), keys)
    other = seal.model_copy(update={"text": "as it is now"})
    with pytest.raises(Forged, match="text_sha256 is not that of the text"):
        signing.verify(signing.sign(key, other), keys)


def test_plans_and_seals_that_were_signed_before_fields_were_added_stay_true(
    key: signing.Key, keys: dict[str, bytes], true_receipt: Receipt
) -> None:
    plan = record.PlanRecord(
        repository=7, pull=2, n=1, commit="a" * 40, at=NOW, plan=true_receipt.execution.plan
    )
    assert not {"spread", "other_design"} & json.loads(plan.canonical()).keys()
    assert true_receipt.seal
    assert "text" not in json.loads(true_receipt.seal.canonical())
    spread = record.Spread(deviation=0.1, arms=3, freedom=6)
    for one in (plan, plan.model_copy(update={"spread": spread, "other_design": "x1"})):
        signing.verify(signing.sign(key, one), keys)


def test_a_record_lies_where_its_kind_lies(
    key: signing.Key,
    keys: dict[str, bytes],
    true_receipt: Receipt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(signing, "place", lambda _: "executions/x0/result")
        file = signing.sign(key, true_receipt)
    with pytest.raises(Forged, match="such a record is at"):
        signing.verify(file, keys)


def test_after_a_rotation_old_files_stay_true_and_after_a_theft_they_do_not(
    tmp_path: Path, key: signing.Key, true_receipt: Receipt
) -> None:
    store, old = Store(tmp_path / "records"), signed(key, true_receipt)
    newer = signing.make_key(tmp_path / "newer.pem")
    for one in (key, newer, newer):
        signing.keep(store, one, NOW)
    both = signing.read_published(signing.published(signing.public_keys(store)))
    assert both.keys() == {key.id, newer.id}
    signing.verify(old, both)
    signing.revoke(store, key.id, NOW)
    with pytest.raises(BadKey, match="is revoked"):
        signing.keep(store, key, NOW)
    left = signing.read_published(signing.published(signing.public_keys(store)))
    with pytest.raises(Forged, match="none of the lab's keys"):
        signing.verify(old, left)
    signing.verify(signed(newer, true_receipt), left)
    with pytest.raises(BadKey, match="know no key"):
        signing.revoke(store, "0" * 16, NOW)


def test_a_key_is_its_owners_alone_and_is_never_replaced(tmp_path: Path, key: signing.Key) -> None:
    path = tmp_path / "lab.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing.read_key(path).id == key.id
    with pytest.raises(BadKey, match="no key is ever replaced"):
        signing.make_key(path)
    path.chmod(0o640)
    with pytest.raises(BadKey, match="others may read"):
        signing.read_key(path)
    (tmp_path / "no.pem").write_text("no key")
    (tmp_path / "no.pem").chmod(0o600)
    with pytest.raises(BadKey, match="no private key"):
        signing.read_key(tmp_path / "no.pem")
    with pytest.raises(BadKey, match="not the one that its id says"):
        signing.read_published(signing.published([key.public]).replace(key.id.encode(), b"0" * 16))


def test_verify_says_in_the_terminal_what_a_file_is_or_what_is_wrong(
    tmp_path: Path, key: signing.Key, true_receipt: Receipt
) -> None:
    file, keys = tmp_path / "result.json", tmp_path / "keys.json"
    keys.write_bytes(signing.published([key.public]))
    file.write_bytes(signed(key, true_receipt))
    told = CliRunner().invoke(app, ["verify", str(file), "--keys", str(keys)])
    assert told.exit_code == 0
    assert f"receipt executions/{true_receipt.execution.id}/result" in told.output
    file.write_bytes(FORGED["a figure changed"][0](file.read_bytes()))
    told = CliRunner().invoke(app, ["verify", str(file), "--keys", str(keys)])
    assert told.exit_code == 1
    assert "the record was changed" in told.output
    told = CliRunner().invoke(app, ["verify", str(file), "--keys", str(tmp_path / "none.json")])
    assert told.exit_code == 2


NO_KEYS = (
    "it is not a list of public keys, as a lab's site has one; save api/keys.json of the lab's site"
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"x": 1}', NO_KEYS),
        (b"[1]", NO_KEYS),
        (b'{"keys": [3]}', NO_KEYS),
        (b'{"keys": [{"id": "a", "ed25519": 5}]}', NO_KEYS),
        (b"not a word", "it is not JSON: "),
        (b"\xff\xfe", "it is not JSON: "),
        (
            None,
            "cannot be read: Is a directory; save api/keys.json of the lab's site, and name that",
        ),
    ],
)
def test_an_invalid_keys_file_is_refused_with_a_sentence(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(content) if content is not None else keys.mkdir()
    told = CliRunner().invoke(app, ["verify", str(tmp_path / "none.json"), "--keys", str(keys)])
    assert (told.exit_code, words in told.output) == (2, True), told.output
    keys.rmdir() if content is None else keys.unlink()
    keys.write_bytes(signing.published([]))
    told = CliRunner().invoke(app, ["verify", str(tmp_path), "--keys", str(keys)])
    assert f"{tmp_path} cannot be read: Is a directory; name a file that a lab has" in told.output
