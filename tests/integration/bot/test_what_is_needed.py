"""Each command checks what it needs before it begins, and says in one sentence what is wrong: a
port, a folder, the store, Ray, GitHub, a key."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import app
from bot.demo import stage
from bot.fake_github import server
from bot.service import health, parts
from bot.setup import settings
from bot.telemetry import logs
from runner.execution.local_ray import free_ports
from runner.execution.ray_jobs import RayAddress, RayAway, RayJobs
from runner.lib import addresses
from tests.scenarios.lab import EXPERIMENT, SECRET, TEXT, a_lab
from tests.unit.bot.test_deployment import nothing_said as nothing_said  # a fixture

AWAY = "http://127.0.0.1:9"
RANGE = "`--port`: Input should be less than or equal to 65535"
USED = "Address already in use; choose another host or port"
NO_RAY = "is not the address of a"
SERVE = (
    *("serve", "--repository", "regatta-lab/lab", "--bot", "regatta-lab[bot]"),
    *("--store", "{store}", "--ray-address", AWAY, "--isolation", "none"),
)
ON_GITHUB = (*SERVE, "--github-api", "{github}")
RUN = ("run", "{experiment}", "--store", "{store}", "--ray-token-file", "{file}", "--ray-address")
# (command, exit code, part of the sentence); `{used}` is a port where somebody listens
# (beancount/fava#172, pallets/werkzeug#2321, cs50/help50-deprecated#238, malwaredllc/byob#159,
# mlcommons/power-dev#61: the second server has to end).
TABLE = [
    ((*ON_GITHUB, "--port", "80808"), 2, RANGE),
    ((*ON_GITHUB, "--port", "-1"), 2, "Input should be greater than or equal to 0"),
    ((*ON_GITHUB, "--port", "{used}"), 1, USED),
    ((*ON_GITHUB, "--host", "203.0.113.7", "--port", "0"), 1, "Cannot assign requested address"),
    ((*ON_GITHUB, "--port", "0", "--metrics-port", "80808"), 2, "should be less than or equal"),
    ((*ON_GITHUB, "--port", "0", "--metrics-port", "{used}"), 1, USED),
    ((*ON_GITHUB, "--port", "0", "--store", "{file}"), 2, "is no folder, and a store is one"),
    ((*ON_GITHUB, "--port", "0", "--jobs", "{file}"), 2, "is no folder, and a store is one"),
    ((*ON_GITHUB, "--port", "0", "--ray-address", "nonsense"), 2, NO_RAY),
    ((*ON_GITHUB, "--port", "0", "--ray-address", "http://x:99999"), 2, NO_RAY),
    ((*ON_GITHUB, "--port", "0", "--ray-token-file", "{none}"), 2, "The token of Ray cannot be"),
    ((*ON_GITHUB, "--port", "0", "--app-id", "7"), 2, "the App's private key cannot be read"),
    ((*SERVE, "--port", "0", "--github-api", AWAY), 1, f"GitHub at {AWAY} cannot be used now"),
    ((*SERVE, "--port", "0", "--github-api", "nonsense"), 2, "is no address of GitHub's API"),
    (("sandbox", "--root", "{none}", "--port", "80808"), 2, RANGE),
    (("sandbox", "--root", "{none}", "--port", "{used}"), 1, USED),
    (("sandbox", "--root", "{file}", "--port", "0"), 1, "Not a directory"),
    (("demo", "--once", "--port", "80808"), 2, RANGE),
    (("demo", "--once", "--port", "{used}"), 1, USED),
    (("demo", "--once", "--report", "{none}/report.json"), 1, "No such file or directory"),
    (("site", "build", "--store", "{made}", "--out", "/proc/site"), 1, "No such file or directory"),
    (("mcp", "--store", "{file}"), 2, "is no folder, and a store is one"),
    ((*RUN, AWAY), 1, f"No Ray answers at {AWAY}"),
    ((*RUN, "nonsense"), 2, NO_RAY),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the table's commands name: a GitHub, a used port, a file where a folder is wanted."""
    root = tmp_path_factory.mktemp("needed")
    (root / "file").write_text("a-token")
    (root / "warm").mkdir()
    (root / "warm/experiment.yaml").write_text(EXPERIMENT.replace("preregistration: 1\n", ""))
    (root / "warm/text.txt").write_text(TEXT)
    (root / "made").mkdir()
    with (
        a_lab(root / "lab", serving=server.running) as lab,
        socket.create_server(("127.0.0.1", 0)) as used,
    ):
        lab.die()
        yield {
            **{"github": f"{lab.sandbox.url}/api/v3", "used": str(used.getsockname()[1])},
            **{"store": str(root / "store"), "file": str(root / "file")},
            **{"none": str(root / "none"), "made": str(root / "made")},
            **{"experiment": str(root / "warm")},
        }


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "set_up", lambda *_, **__: None)
    monkeypatch.setenv(settings.SECRET, SECRET)
    monkeypatch.setenv(settings.TOKEN, "installation-token")
    monkeypatch.setenv(settings.RAY_TOKEN, "a-token-of-ray")
    monkeypatch.setenv(settings.APP_KEY, "not a key at all")


@pytest.mark.parametrize(("command", "code", "words"), TABLE, ids=lambda x: str(x)[-60:])
def test_what_is_missing_is_said_in_one_sentence_before_anything_begins(
    places: dict[str, str], command: tuple[str, ...], code: int, words: str
) -> None:
    told = CliRunner().invoke(app, [word.format(**places) for word in command])
    assert (told.exit_code, words in told.output) == (code, True), (told.output, told.exception)
    assert told.exception is None or isinstance(told.exception, SystemExit)
    assert len(told.output.strip().splitlines()) == 1, told.output
    store = Path(places["store"])
    begun = [
        *store.rglob("leases/*"),
        *store.rglob("executions/*"),
        *Path(places["none"]).glob("*"),
    ]
    assert not begun, "no lease, no execution, no folder"


def test_a_port_is_taken_before_the_bot_leads_and_until_it_ends() -> None:
    with addresses.listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=USED):
            addresses.listen("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # whoever comes early waits, and is not refused


def test_a_ray_that_does_not_answer_is_logged_and_the_bot_starts(
    places: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = settings.Settings(
        repository="regatta-lab/lab",
        ray_address=AWAY,
        github_api=places["github"],
        bot="regatta-lab[bot]",
        store=str(tmp_path / "store"),
        isolation="none",
    )
    store, github = parts.opened(said)
    assert parts.reconciler(said, store, github)
    assert f"No Ray answers at {AWAY}" in caplog.text
    assert "approved experiments wait" in caplog.text


def test_a_child_of_the_demo_that_ends_is_said_at_once_with_its_last_words(tmp_path: Path) -> None:
    story = stage.Story(stage.Console(quiet=True))
    options = ["--root", str(tmp_path / "x"), "--port", "80808"]
    with stage.child(tmp_path, "sandbox", options, stage.surroundings()) as process:
        story.children[tmp_path / "sandbox.log"] = process
        with pytest.raises(stage.Missed, match=rf"`sandbox` has ended: {RANGE}"):
            story.wait("the bot starts", lambda: None, patience=120)


def test_what_answers_and_is_no_ray_is_not_taken_for_one(places: dict[str, str]) -> None:
    (port,) = free_ports(1)
    end = health.serve_metrics("127.0.0.1", port)
    try:
        with pytest.raises(RayAway, match="No Ray answers"):
            RayJobs(RayAddress(f"http://127.0.0.1:{port}", Path(places["file"]))).check()
    finally:
        end()
