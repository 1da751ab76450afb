"""How secrets reach a deployment."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot.model.site import Site
from bot.service import actions_job
from bot.setup import settings
from bot.setup.settings import SECRET, Settings, Unset
from runner.isolation import bubblewrap


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SECRET, settings.OLD_SECRET, settings.TOKEN, settings.RAY_TOKEN):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)


def said(**more: Any) -> Settings:
    return Settings(repository="lab/lab", ray_address="http://127.0.0.1:9", **more)


def test_a_secret_comes_from_the_environment_or_a_file_without_its_line_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of the file\n")
    monkeypatch.setenv(f"{SECRET}_FILE", str(tmp_path / "secret"))
    assert said().secret(SECRET) == "of the file"
    monkeypatch.setenv(SECRET, "of the environment")
    assert said().secret(SECRET) == "of the environment"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_secret_that_is_not_there_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv(f"{SECRET}_FILE", str(tmp_path / "secret"))
    with pytest.raises(Unset, match=f"{SECRET}_FILE names"):
        said().secret(SECRET)


def test_without_a_secret_it_is_said_how_to_say_one() -> None:
    with pytest.raises(Unset, match=f"Set it, or let {SECRET}_FILE name a file"):
        said().secret(SECRET)


def test_rays_token_out_of_the_environment_lies_in_a_file_of_ours_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(settings.RAY_TOKEN, "a-token")
    file = said().file_of_ray_token()
    assert file.read_text() == "a-token"
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_an_empty_variable_of_actions_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.RAY_TOKEN, "a-token")
    assert said(ray_token_file=Path()).file_of_ray_token().read_text() == "a-token"
    monkeypatch.delenv(settings.RAY_TOKEN)
    with pytest.raises(Unset, match="REGATTA_RAY_TOKEN_FILE"):
        said(ray_token_file=Path()).file_of_ray_token()


@pytest.mark.parametrize(
    ("how", "trust", "works", "is_in"),
    [
        (None, False, True, "bubblewrap"),
        (None, False, False, ""),
        (None, True, False, "trusted"),
        ("trusted", True, False, "trusted"),
        ("trusted", False, True, "trusted"),
        ("bubblewrap", False, False, "bubblewrap"),
        ("none", False, True, ""),
    ],
)
def test_own_code_is_isolated_as_the_operator_says_else_as_works_here(
    monkeypatch: pytest.MonkeyPatch, how: str | None, trust: bool, works: bool, is_in: str
) -> None:
    monkeypatch.setattr(bubblewrap, "probe", lambda: "" if works else "It is not there.")
    assert said(isolation=how, trust_approved_code=trust).isolated() == is_in


@pytest.mark.parametrize("how", ["bubblewrap", "none"])
def test_an_operator_who_says_two_things_is_asked_for_one(how: str) -> None:
    with pytest.raises(Unset, match="contradict"):
        said(isolation=how, trust_approved_code=True).isolated()


@pytest.mark.parametrize(
    ("address", "site"),
    [("https://lab.example/", Site("https://lab.example", live=False)), ("", None)],
)
def test_in_actions_mode_comments_link_to_a_published_site_which_shows_nothing_live(
    monkeypatch: pytest.MonkeyPatch, address: str, site: Site | None
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(actions_job, "opened", lambda _: (None, SimpleNamespace(id=1)))
    monkeypatch.setattr(actions_job, "reconciler", lambda *_, **more: given.update(more))
    monkeypatch.setattr(actions_job, "work", lambda *_, **__: "done")
    for name in ("event_of", "keep", "lasting"):
        monkeypatch.setattr(actions_job, name, lambda *_: None)
    monkeypatch.setattr(actions_job.logs, "set_up", lambda *_, **__: None)
    actions_job.handle(said(site=address), {}, 1.0)
    assert given == {"site": site}
