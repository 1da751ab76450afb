"""Held secrets are taken out of what is quoted, however they are written there."""

import base64
import html
import json
import urllib.parse
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.lib import redact
from runner.schema import record
from tests import synthetic

SECRET = 'ghs_16C7e42F292c6912E7710c838347Ae178B4a/+"&<é'


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    redact.forget()
    redact.hold(SECRET)
    yield
    redact.forget()


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "a URL": urllib.parse.quote,
    "a whole URL": lambda x: urllib.parse.quote(x, safe=""),
    "a form": urllib.parse.quote_plus,
    "JSON": lambda x: json.dumps(x)[1:-1],
    "JSON of JSON's letters": lambda x: json.dumps(x, ensure_ascii=False)[1:-1],
    "HTML": html.escape,
    "hex": lambda x: x.encode().hex(),
    "HEX": lambda x: x.encode().hex().upper(),
    "he:x": lambda x: x.encode().hex(":"),
    "base64": lambda x: base64.b64encode(x.encode()).decode().rstrip("="),
    "base64 in a URL": lambda x: base64.urlsafe_b64encode(x.encode()).decode().rstrip("="),
    "each character as HTML": lambda x: "".join(f"&#{ord(one)};" for one in x),
    "each character as C": lambda x: "".join(f"\\u{ord(one):04x}" for one in x),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_is_found_however_it_is_written(way: str) -> None:
    written = WAYS[way](SECRET)
    said = redact.clean(f"before {written} after")
    assert said.startswith("before [secret]")
    assert said.endswith(" after")
    assert len(said) <= len("before [secret]xx after"), "a last character of base64 may be left"


@given(st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_a_secret_is_found_within_base64_of_more(
    before: bytes, after: bytes, wrapped: bool
) -> None:
    whole = before + SECRET.encode() + after
    encode = base64.encodebytes if wrapped else base64.b64encode
    said = redact.clean(encode(whole).decode())
    assert "[secret]" in said
    assert len(said.replace("[secret]", "").strip()) <= 2 * 12 + 4


@given(st.text())
def test_text_without_a_secret_stays_unchanged(words: str) -> None:
    assert redact.clean(words) == words


def test_each_line_of_a_key_is_found() -> None:
    lines = ["MIIEowIBAAKCAQEAx3tq", "9fK2mB7uQz1yWc4vTn0p"]
    redact.hold("\n".join(["-----BEGIN KEY-----", *lines, "-----END KEY-----"]))
    assert redact.clean(f"it says {lines[1]}") == "it says [secret]"
    assert redact.clean("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


def test_too_short_a_text_is_not_held_as_a_secret() -> None:
    redact.hold("", "abc")
    assert redact.clean("abc") == "abc"


def test_a_jobs_texts_are_recorded_without_secrets() -> None:
    ended = record.Ended(
        at=synthetic.START, how="failed", why=f"KeyError: {SECRET}", receipt={"jax": SECRET}
    )
    said = redact.cleaned(ended)
    assert (said.why, said.receipt) == ("KeyError: [secret]", {"jax": "[secret]"})
    plain = ended.model_copy(update={"why": "KeyError", "receipt": {}})
    assert redact.cleaned(plain) is plain


def test_figures_stay_figures_and_digests_have_the_form_of_one() -> None:
    redact.hold("12345678", "e" * 64)
    scored = record.Evaluated(bpb=1.0, loss=1.0, targets=12345678, params_sha256="e" * 64)
    said = redact.cleaned(scored)
    assert (said.targets, said.params_sha256) == (12345678, "0" * 64)


@pytest.mark.parametrize("after", ["", "; b: KeyError", "…", " and more"])
@pytest.mark.parametrize("length", [8, 20, len(SECRET) - 1])
def test_a_secret_that_was_cut_is_found_where_the_words_end(length: int, after: str) -> None:
    assert redact.clean(f"a: {SECRET[:length]}{after}") == f"a: [secret]{after}"


def test_a_text_that_only_begins_like_a_secret_stays() -> None:
    redact.hold("https://user:password@example.org")
    for words in ("https://example.org", SECRET[:7], "ghs_16C7ever"):
        assert redact.clean(words) == words


def test_a_replaced_secret_is_forgotten() -> None:
    redact.hold("a-new-token", instead_of=SECRET)
    assert redact.clean(f"{SECRET} a-new-token") == f"{SECRET} [secret]"


def test_variables_named_like_secrets_are_secrets() -> None:
    found = redact.of_environment(
        {"WANDB_API_KEY": "a", "REGATTA_WEBHOOK_SECRET": "b", "PATH": "c", "TOKEN_FILE": "d"}
    )
    assert found == ["a", "b"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["env", "OPENAI_API_KEY=sk", "python", "p.py"], "OPENAI_API_KEY"),
        (["p", "--token", "abc"], "token"),
        (["p", "--header", "Bearer 123456789"], "MY_TOKEN"),
        (["python", "monkey", "--keys=3", "--max-tokens", "5"], None),
    ],
)
def test_a_command_that_names_a_secret_is_found(command: list[str], name: str | None) -> None:
    assert redact.named_in(command, {"MY_TOKEN": "123456789", "A_KEY": "p"}) == name


class Counting(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, part: Any) -> str:
        found = super().__getitem__(part)
        Counting.copied += len(found)
        return found


@pytest.mark.parametrize("repeated", [f"{SECRET[:8]}x", SECRET[:8], f"{SECRET[:-1]}_"])
def test_who_knows_the_beginning_of_a_secret_cannot_make_redaction_slow(
    repeated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A library's substitution would return a plain text, which counts nothing.
    monkeypatch.setattr(redact, "_found", SimpleNamespace(sub=lambda _, text: text))

    def copied(times: int) -> int:
        Counting.copied = 0
        assert redact.clean(Counting(repeated * times))
        return Counting.copied

    assert copied(2_000) <= 2.1 * copied(1_000)
    assert copied(2_000) <= 2_000 * 2 * len(SECRET)


@given(st.lists(st.sampled_from([SECRET[:8], SECRET[:12], SECRET[:-1], "x", " ", SECRET[8:12]])))
def test_each_beginning_of_a_secret_before_a_cut_is_taken_out(words: list[str]) -> None:
    said = ("[secret]" if word.startswith(SECRET[:8]) else word for word in words)
    assert redact.clean(" ".join(words)) == " ".join(said)
    assert redact.clean(f"{SECRET[:20]}. and {SECRET[:9]}") == "[secret]. and [secret]"
    assert redact.clean(f"{SECRET[:20]}_more") == f"{SECRET[:20]}_more"
