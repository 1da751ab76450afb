"""Arguments of several commands: the store, an execution in it, an experiment's folder, and a
Ray."""

from pathlib import Path
from typing import Annotated

import typer

from runner.cli.commands import Wrong
from runner.cli.ending import stop, stopping
from runner.execution.ray_jobs import EXAMPLE, RayAddress
from runner.history import provenance
from runner.lib import addresses
from runner.lib.problems import near
from runner.schema import record
from runner.store.backends import ELSEWHERE
from runner.store.store import NoStore, Store, StoreError

EXPERIMENTS = Path("experiments")
LATEST = "latest"
STORE = "store"  # the default
MAX_NAMED = 5  # executions with the given prefix, listed in an error

TheStore = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="REGATTA_STORE",
        help="The store: a folder, or gs://bucket/prefix.",
    ),
]
TheJobs = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        envvar="REGATTA_JOBS",
        help="Another place for everything that jobs read and write. Then jobs need no access to "
        "the store.",
    ),
]


def begun(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of executions that begin so, for a shell that completes a word."""
    try:
        store = Store(context.params.get("store") or "store", make=False)
        known = [*record.names(store, "executions"), LATEST]
    except StoreError:
        return []
    return [one for one in known if one.startswith(incomplete)]


def declared(incomplete: str) -> list[str]:
    """The names of experiments that begin so, likewise."""
    return [one for one in _known() if one.startswith(incomplete)]


TheExecution = Annotated[
    str,
    typer.Argument(
        help="The id, its beginning, `latest`, or an experiment's name.", autocompletion=begun
    ),
]


def named(path: Path) -> Path:
    """The path of an experiment: a folder of `experiments` may be given by its name alone."""
    inside = EXPERIMENTS / path
    return inside if inside.exists() and not path.exists() else path


def experiment(path: Path | None) -> Path | None:
    """The given experiment, which must exist."""
    if path is None or named(path).exists():
        return path and named(path)
    raise Wrong(_unknown(path))


def experiments(paths: list[Path] | None) -> list[Path]:
    """All given experiments."""
    return [found for path in paths or [] if (found := experiment(path))]


def _known() -> list[str]:
    return sorted(one.name for one in EXPERIMENTS.glob("*/") if any(one.glob("experiment.*")))


def _unknown(path: Path) -> str:
    known = _known()
    there = f"; `{EXPERIMENTS}` has {', '.join(known)}" if known else ""
    return f"{path} does not exist{there}{near(path.name, known)}"


ThePath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="An experiment: its folder, its name in `experiments`, or its experiment.yaml.",
        callback=experiment,
        autocompletion=declared,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
RayUrl = Annotated[
    str | None, typer.Option(help="A Ray dashboard's URL. Without it, a local Ray is started.")
]
RayToken = Annotated[Path | None, typer.Option(help="The file with its token.")]


def made(place: str, jobs: str | None) -> Store:
    """The store, created if there is none."""
    with stopping(StoreError):
        return Store(place, jobs=jobs)


def found(place: str, jobs: str | None) -> Store | None:
    """The store, if there is one: any existing folder counts. Ends the command if the path is no
    folder."""
    with stopping(StoreError):
        try:
            return Store(place, jobs=jobs, make=Path(place).is_dir())
        except NoStore:
            return None


def opened(place: str, jobs: str | None, instead: str = ELSEWHERE) -> Store:
    """The store, which must exist; `instead` says what to do otherwise."""
    words = f"there is no store at {place}: nothing has run here yet, or {instead}."
    return found(place, jobs) or stop(words)


def execution(store: Store, id: str) -> record.Execution:
    """The execution with this id, or the only one with this prefix; or the `latest`, of all or of
    an experiment."""
    with stopping(StoreError):
        if id == LATEST:
            newest = max(provenance.executions(store), key=lambda one: one.at, default=None)
            return newest or stop(f"{store.root} has no executions yet.")
        known = record.names(store, "executions")
        meant = [one for one in known if id and one.startswith(id)]
        if len(meant) > 1 and id not in meant:
            more = f" and {len(meant) - MAX_NAMED} more" if len(meant) > MAX_NAMED else ""
            listed = ", ".join(meant[:MAX_NAMED])
            stop(f"{id} begins the ids of {listed}{more}; write more of the one you mean.")
        if not meant and (of_experiment := provenance.latest(store, id)):
            return of_experiment
        if not meant:
            stop(f"{store.root} has no execution or experiment {id}; `regatta ls` lists them.")
        name = id if id in meant else meant[0]
        return record.require(store, f"executions/{name}/execution", record.Execution)


def in_steps(store: Store, id: str) -> record.Execution:
    """The given execution, if its plan has steps, so that it can be inspected and repeated."""
    found = execution(store, id)
    if not found.plan.steps:
        words = "`regatta show` shows it, and it is not run again"
        stop(f"{found.id} is of an older lab, whose plans have no steps: {words}.")
    return found


def half_a_ray(url: str | None, token: Path | None) -> list[str]:
    """Errors in the options for a Ray."""
    together = "--ray-address and --ray-token-file go together: give both or neither."
    wrong = [together] if bool(url) != bool(token) else []
    if url and not addresses.is_http(url):
        wrong.append(f"--ray-address: {url} is not the address of a dashboard, such as {EXAMPLE}.")
    return wrong


def ray(url: str | None, token: Path | None) -> RayAddress | None:
    """The given Ray; None if one is to be started."""
    if wrong := half_a_ray(url, token):
        stop(wrong[0])
    return RayAddress(url, token) if url and token else None
