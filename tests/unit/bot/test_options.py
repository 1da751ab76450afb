"""What `serve`, `handle`, `doctor` and `init` take: each option and variable is declared once, and
is read once."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bot.cli.main import app
from bot.setup import settings
from bot.telemetry import logs

SHARED = {
    "--repository": "REGATTA_REPOSITORY",
    "--ray-address": "REGATTA_RAY_ADDRESS",
    "--ray-token-file": "REGATTA_RAY_TOKEN_FILE",
    "--store": "REGATTA_STORE",
    "--jobs": "REGATTA_JOBS",
    "--github-api": "REGATTA_GITHUB_API",
    "--bot": "REGATTA_BOT",
    "--cluster": "REGATTA_CLUSTER",
    "--isolation": "REGATTA_ISOLATION",
    "--trust-approved-code": "REGATTA_TRUST_APPROVED_CODE",
    "--records-branch": "REGATTA_RECORDS_BRANCH",
    "--no-records-branch": "REGATTA_RECORDS_BRANCH",
}
OF = {
    "serve": SHARED
    | {
        "--app-id": "REGATTA_APP_ID",
        "--seconds-between-writes": "REGATTA_SECONDS_BETWEEN_WRITES",
        "--key": "REGATTA_KEY",
        "--host": None,
        "--port": None,
        "--metrics-port": "REGATTA_METRICS_PORT",
        "--metrics-host": "REGATTA_METRICS_HOST",
        "--logs": "REGATTA_LOGS",
    },
    "handle": SHARED
    | {"--seconds-between-writes": "REGATTA_SECONDS_BETWEEN_WRITES", "--minutes": None},
    "doctor": SHARED
    | {"--app-id": "REGATTA_APP_ID", "--url": "REGATTA_URL"}
    | {"--actions": None, "--train": None, "--json": None},
    "init": {
        "folder": None,
        "--mode": None,
        "--url": None,
        "--runner": None,
        "--package": None,
        "--repository": "REGATTA_REPOSITORY",
        "--github-api": "REGATTA_GITHUB_API",
        "--yes": None,
        "--replace": None,
    },
}


@pytest.mark.parametrize("command", OF)
def test_a_command_takes_these_options_and_variables_and_no_others(command: str) -> None:
    taken = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    found = {
        option: one.envvar
        for one in taken
        for option in (*one.opts, *one.secondary_opts)
        if option != "--help"
    }
    assert found == OF[command]


@pytest.mark.parametrize("command", ["serve", "handle", "doctor"])
def test_a_missing_required_setting_is_named(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--repository", "lab/lab"])
    assert told.exit_code == 2
    assert "--ray-address is missing; write " in told.output
    unknown = {"REGATTA_RAY_ADDRESS": "http://127.0.0.1:9", "REGATTA_ISOLATION": "chroot"}
    told = CliRunner().invoke(app, [command, "--repository", "lab/lab"], env=unknown)
    assert told.exit_code == 2
    assert "'chroot' is not one of" in told.output


def test_no_secret_stands_in_what_shows_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("the key of the App")
    monkeypatch.setenv(settings.SECRET, "0123456789abcdef" * 4)
    monkeypatch.setenv(f"{settings.APP_KEY}_FILE", str(tmp_path / "key"))
    said = settings.Settings(repository="lab/lab", ray_address="http://127.0.0.1:9")
    held = said.all_secrets()
    assert held == ("0123456789abcdef" * 4, "the key of the App")
    shown = repr(said) + str(said) + str(said.model_dump()) + said.model_dump_json()
    assert not [secret for secret in held if secret in shown]


def test_a_command_ignores_settings_without_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "set_up", lambda *_, **__: None)
    seen: list[settings.Settings] = []
    monkeypatch.setattr("bot.service.actions_job.event_of", lambda _: None)
    monkeypatch.setattr("bot.service.actions_job.opened", lambda said: seen.append(said) or 1 / 0)
    environment = {"REGATTA_APP_ID": "Iv1.lab", "REGATTA_LOGS": "xml", "REGATTA_PORT": "tcp://x"}
    command = ["handle", "--repository", "lab/lab", "--ray-address", "http://127.0.0.1:9"]
    told = CliRunner().invoke(app, [*command, "--store", str(tmp_path)], env=environment)
    assert isinstance(told.exception, ZeroDivisionError), told.output
    assert [(said.app_id, said.logs, said.bot) for said in seen] == [
        ("", None, "github-actions[bot]")
    ]


def test_init_reads_of_the_settings_the_token_alone(tmp_path: Path) -> None:
    environment = {"REGATTA_LOGS": "xml", "REGATTA_METRICS_PORT": "none"}
    told = CliRunner().invoke(app, ["init", str(tmp_path), "--yes"], env=environment)
    assert told.exit_code == 0, told.exception
