"""Repositories that move, and people who vanish."""

import pytest

from tests.reports.github.github_lab import (
    begin,
    fail,
    failures,
    is_complete,
    mend,
    results,
    say,
    turn,
)
from tests.scenarios.lab import Lab


class InstallationTokens:
    """An App's credentials: a token of the newest installation, until it is dropped."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.asked = lab, 0
        self._token = ""

    def __call__(self) -> str:
        world = self.lab.sandbox.world
        if not self._token:
            self.asked += 1
            self._token = f"installation-{world.installation_id}-{self.asked}"
            world.tokens[self._token] = world.bot
        return self._token

    def renew(self, token: str) -> None:
        if token == self._token:
            self._token = ""


@pytest.fixture
def app(lab: Lab) -> Lab:
    """A lab whose bot is an App, with a run that goes on."""
    lab.credentials = InstallationTokens(lab)
    lab.die()
    begin(lab)
    lab.trainer.pace = None
    return lab


def asked(app: Lab) -> int:
    assert isinstance(app.credentials, InstallationTokens)
    return app.credentials.asked


@pytest.mark.parametrize("is_told", [True, False])
def test_a_transfer_to_another_account_ends_nothing(app: Lab, is_told: bool) -> None:
    gate = app.gate
    app.gate = gate if is_told else None
    app.sandbox.transfer("another-lab")
    app.gate = gate
    turn(app, 420, 5)
    assert failures(app) == []
    assert is_complete(app)
    assert asked(app) <= 3


def test_curie_1257_an_app_that_was_installed_again_is_served_again(app: Lab) -> None:
    world = app.sandbox.world
    world.installation_id += 1
    world.retired |= set(world.tokens) - {"ada-token"}
    turn(app, 420, 5)
    assert is_complete(app)
    assert asked(app) == 2


def test_propcache_17_an_app_that_fell_off_in_the_transfer_posts_when_it_is_back(
    app: Lab,
) -> None:
    app.sandbox.transfer("another-lab")
    fail(app, "*", r"^/repos/", 404, "Not Found")
    turn(app, 1200, 5)
    mend(app)
    turn(app, 420, 5)
    assert failures(app) == []
    assert is_complete(app)
    assert asked(app) <= 6


def test_create_github_app_token_76_a_refusal_that_no_token_cures_asks_for_few_tokens(
    app: Lab,
) -> None:
    before = asked(app)
    fail(app, "POST", r"/check-runs$", 403, "Resource not accessible by integration")
    turn(app, 3600, 5)
    assert asked(app) - before <= 7
    assert results(app) == 1


def test_giscus_391_an_author_who_vanishes_loses_no_result(app: Lab) -> None:
    app.sandbox.vanish("ada")
    turn(app, 420, 5)
    assert is_complete(app)
    say(app, "sam", "/status")
    turn(app, 20)
    assert "| execution | state |" in app.last(2)


def test_claude_code_action_1489_a_maintainer_who_vanishes_has_still_approved_what_runs(
    app: Lab,
) -> None:
    app.sandbox.vanish("grace")
    turn(app, 420, 5)
    assert is_complete(app)


def test_a_rename_in_the_middle_of_a_run_is_followed(app: Lab) -> None:
    app.sandbox.rename("regatta")
    turn(app, 420, 5)
    assert is_complete(app)
