"""`regatta`: the bot's commands and the runner's."""

import os
import secrets
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from bot.cli import deployment, init
from bot.cli.options import PORTS
from bot.setup.init import labels
from runner.cli import new
from runner.cli.commands import App
from runner.cli.ending import stop, stopping, tell
from runner.cli.main import app
from runner.cli.options import EXPERIMENTS, AsJson, TheJobs, TheStore
from runner.lib import addresses
from runner.store.store import NoStore, Store, StoreError

ROOT = Path(__file__).parents[2]

site_app = App(help="Build the static site.", no_args_is_help=True)
app.add_typer(site_app, name="site")
app.add_typer(deployment.app)
app.command("init")(init.command)


@app.command()
def mcp(store: TheStore = "store", jobs: TheJobs = None) -> None:
    """Serve the Model Context Protocol on stdin and stdout: tools that read and propose.

    They never approve, start or stop anything. A client starts this command in the checkout of a
    lab."""
    try:
        from bot.cli.mcp_server import server
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp.server"):
            raise
        stop("`regatta mcp` needs one more package; run `pip install 'regatta[mcp]'`.")
    with stopping(StoreError), suppress(NoStore):
        Store(store, jobs=jobs, make=False)
    server(Path(), store, jobs).run("stdio")


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the story.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write each beat with its time and link to this file.")
    ] = None,
    port: Annotated[
        int, typer.Option(help="The port of the sandbox; 0 takes a free one.", **PORTS)
    ] = 0,
) -> None:
    """Play a whole story on this machine: sandbox, bot, Ray, training, verdict."""
    from bot.demo.demo import play

    sys.exit(play(ROOT, once=once, report=report, port=port))


@app.command()
def sandbox(
    root: Annotated[Path, typer.Option(help="The folder for its git repository.")] = Path(
        "sandbox"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.", **PORTS)] = 8081,
    webhook_url: Annotated[str, typer.Option(help="The address to which deliveries go.")] = "",
    leaderboard_url: Annotated[
        str, typer.Option(help="The leaderboard to which its pages link.")
    ] = "",
) -> None:
    """Run the stand-in for GitHub on 127.0.0.1, for playing and testing."""
    from bot.fake_github import server
    from bot.fake_github.world.sandbox import PERSONAS, make_sandbox

    bound = addresses.listen(server.HOST, port)
    made = make_sandbox(
        root,
        files=seed_files(ROOT),
        bot_token=os.environ.get("REGATTA_GITHUB_TOKEN", secrets.token_hex(16)),
        persona_tokens={one.login: f"{one.login}-token" for one in PERSONAS},
        webhook_secret=os.environ.get("REGATTA_WEBHOOK_SECRET", secrets.token_hex(16)),
        webhook_url=webhook_url or None,
        leaderboard_url=leaderboard_url or None,
        starter=new.first("experiments/my-experiment"),
    )
    for label, color in labels().items():
        made.create_label(made.world.owner.login, label, color)
    server.serve(made, bound, ready=lambda url: print(url, flush=True))


@site_app.command()
def build(
    out: Annotated[Path, typer.Option(help="The folder to write; replaced as a whole.")] = Path(
        "site"
    ),
    store: TheStore = "store",
    jobs: TheJobs = None,
    lab: Annotated[str, typer.Option(help="The lab's name on the pages.")] = "Regatta",
    repository_url: Annotated[
        str,
        typer.Option(
            help="The address with which links to threads begin, such as https://github.com."
        ),
    ] = "https://github.com",
    repository: Annotated[
        str,
        typer.Option(
            metavar="OWNER/NAME",
            envvar=["REGATTA_REPOSITORY", "GITHUB_REPOSITORY"],
            help="The lab's repository, to which each page links. Needed where the store's own "
            "executions name none or several.",
        ),
    ] = "",
    key: Annotated[
        Path | None, typer.Option(help="The lab's signing key (`regatta key new`).")
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            envvar="REGATTA_SITE",
            help="Where people will reach the site. Preview images are only found by their whole "
            "address, so without it none are drawn.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Build the leaderboard and its pages from the records.

    Records in experiments/*/records (`regatta store keep`) are shown with those of the store, or
    alone if there is no store.
    """
    from bot.site.pages import build as pages_build
    from runner.history import kept_records
    from runner.publish import signing
    from runner.schema import lab_config

    with (
        stopping(StoreError, pages_build.SiteError, signing.BadKey),
        tempfile.TemporaryDirectory() as nothing,
    ):
        kept = kept_records.places(EXPERIMENTS)
        try:
            opened = Store(store, jobs=jobs, also=kept, make=False)
        except NoStore:
            if not kept:
                raise
            opened = Store(nothing, also=kept)
        signs = signing.read_key(key) if key else None
        built = pages_build.build(
            opened,
            out,
            lab=lab,
            repository_url=repository_url,
            repository=repository,
            key=signs,
            address=address,
            tracks=lab_config.find(Path()).tracks,
        )
    index = out / "index.html"
    tell(str(index), as_json, index=index, drawn=len(built.drawn), left_out=dict(built.left_out))


def seed_files(root: Path) -> dict[str, bytes]:
    """The initial files of a lab's repository: its README, its form and template."""
    paths = [root / "README.md", *sorted((root / ".github").rglob("*"))]
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()
    }


def main() -> None:
    """The command line."""
    app()
