"""The pages of the stand-in for GitHub can be used by everybody."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from bot.cli.main import ROOT, seed_files
from bot.fake_github.server import Sandbox, make_sandbox, running
from tests.system.browser.conftest import PHONE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
COMMENT = "### Plan\n\n| a | b |\n| --- | --: |\n| `x` | 1 |\n\n- [x] done\n\nof {sha}, see #1"


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    made = make_sandbox(
        tmp_path, files=seed_files(ROOT), bot_token="b", persona_tokens={}, webhook_secret="s" * 30
    )
    made.open_issue("ada", "A question", "Some **words**, `code` and [a link](https://lab.example)")
    made.commit("ada", "warm", {"experiments/a/experiment.yaml": b"title: A\n"}, "Declare")
    pull = made.open_pull("ada", "A declaration", "Tests #1.", "warm")
    head = pull.as_pull.head_sha
    made.comment(made.world.bot.login, pull.number, COMMENT.format(sha=head))
    made.create_check_run(
        made.world.bot.login,
        name="regatta / plan",
        head_sha=head,
        conclusion="success",
        output={"title": "1 run", "summary": "words"},
    )
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_audit_finds_nothing_and_no_page_is_too_wide_for_a_phone(
    sandbox: Sandbox, chromium: Browser, scheme: str
) -> None:
    head = sandbox.world.issues[2].as_pull.head_sha
    (check,) = sandbox.world.checks
    form = "issues/new?template=experiment.yml"
    paths = ("", "issues/1", "pull/2", "issues/new", form, "compare", f"commit/{head}", "nope")
    with running(sandbox) as url:
        context = chromium.new_context(viewport=PHONE, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        for path in (*paths, "blob/main/README.md", f"runs/{check}"):
            page.goto(f"{url}/regatta-lab/lab/{path}".removesuffix("/"))
            found = Axe().run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        context.close()
