"""REST operations on branches, commits, comparisons, files and check runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Home, Lab, Person, Sent, listing, number_asked
from bot.fake_github.world import shapes_code as shapes
from bot.fake_github.world.errors import Refused, not_found, unprocessable
from bot.fake_github.world.state import World

router = APIRouter()


# Check runs


@router.post("/check-runs")
def create_check_run(lab: Lab, who: Person, sent: Sent) -> Answer:
    made = lab.create_check_run(who.login, **sent)
    return Answer(shapes.check_run(lab.world, made), 201)


@router.get("/check-runs/{run_id}")
def get_check_run(run_id: int, lab: Lab) -> Answer:
    return Answer(shapes.check_run(lab.world, lab.check_run(run_id)))


@router.patch("/check-runs/{run_id}")
def update_check_run(run_id: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    changed = lab.update_check_run(who.login, run_id, **sent)
    return Answer(shapes.check_run(lab.world, changed))


@router.get("/commits/{ref:path}/check-runs")
def list_check_runs(
    ref: str, request: Request, lab: Lab, filter: str = "latest",
    check_name: str | None = None, status: str | None = None,
) -> Answer:  # fmt: skip
    sha = _commit_named(lab.world, ref, unprocessable(f"No commit found for SHA: {ref}"))
    runs = [
        run
        for run in lab.check_runs(sha, every=filter == "all")
        if check_name in (None, run.name) and status in (None, run.status)
    ]
    return listing(request, runs, shapes.check_run, inside="check_runs")


# Commits and files


def _commit_named(world: World, name: str, refusal: Refused | None = None) -> str:
    sha = world.git.resolve(name)
    if sha is None:
        raise refusal or not_found()
    return sha


@router.get("/commits/{ref:path}")
def get_commit(ref: str, home: Home) -> Answer:
    sha = _commit_named(home.world, ref, unprocessable(f"No commit found for SHA: {ref}"))
    return Answer(shapes.commit(home.world, sha, whole=True))


@router.get("/branches/{branch:path}")
def get_branch(branch: str, home: Home) -> Answer:
    sha = home.world.git.ref(f"refs/heads/{branch}")
    if sha is None:
        raise not_found("Branch not found")
    return Answer(shapes.branch(home.world, branch, sha))


@router.get("/compare/{basehead:path}")
def compare(basehead: str, request: Request, home: Home) -> Answer:
    base, dots, head = basehead.partition("...")
    if not dots:
        raise not_found()
    world, ours = home.world, f"{home.world.owner.login}:"
    old, new = (_commit_named(world, name.removeprefix(ours)) for name in (base, head))
    merge_base = world.git.merge_base(old, new)
    if merge_base is None:
        raise not_found(f"No common ancestor between {base} and {head}.")
    per_page = number_asked(request, "per_page", 250)
    page = number_asked(request, "page", 1)
    part = slice((page - 1) * per_page, page * per_page)
    return Answer(shapes.comparison(world, old, new, merge_base, basehead, part))


@router.get("/contents/{path:path}")
def get_contents(path: str, request: Request, home: Home, ref: str | None = None) -> Response:
    world, path = home.world, path.strip("/")
    ref = ref or world.default_branch
    sha = _commit_named(world, ref)
    entry = world.git.entry(sha, path) if path else None
    if path and entry is None:
        raise not_found()
    if entry and entry.type == "blob":
        if "raw" in request.headers.get("accept", ""):
            media_type = "application/vnd.github.raw+json"
            return Response(world.git.blob(entry.sha), media_type=media_type)
        return Answer(shapes.content(world, entry, path, ref, whole=True))
    under = f"{path}/" if path else ""
    inside = world.git.tree(sha, path=path)
    return Answer([shapes.content(world, e, under + e.path, ref, whole=False) for e in inside])
