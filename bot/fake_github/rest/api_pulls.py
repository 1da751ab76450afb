"""REST operations on pull requests, reviews and merges; and locks, timelines and forks."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Lab, Person, Sent, in_order, listing, texts
from bot.fake_github.world import shapes, shapes_code, shapes_thread
from bot.fake_github.world.errors import invalid

router = APIRouter()


# Pull requests


@router.get("/pulls")
def list_pulls(
    request: Request, lab: Lab, state: str = "open", head: str | None = None,
    base: str | None = None, sort: str = "created", direction: str | None = None,
) -> Answer:  # fmt: skip
    found = [
        one
        for one in list(lab.world.issues.values())
        if (pull := one.pull)
        and state in ("all", one.state)
        and head in (None, f"{pull.head_owner.login}:{pull.head}")
        and base in (None, pull.base)
    ]
    default = "desc" if sort == "created" else "asc"
    ordered = in_order(found, sort, direction or default)
    return listing(request, ordered, shapes_thread.pull_simple)


@router.post("/pulls")
def create_pull(lab: Lab, who: Person, sent: Sent) -> Answer:
    given = texts(sent, "title", "body", "head", "base")
    made = lab.open_pull(who.login, draft=sent.get("draft") is True, **given)
    return Answer(shapes_thread.pull(lab.world, made), 201)


@router.get("/pulls/{number}")
def get_pull(number: int, lab: Lab) -> Answer:
    return Answer(shapes_thread.pull(lab.world, lab.pull(number)))


@router.patch("/pulls/{number}")
def update_pull(number: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    lab.pull(number)
    with lab.changing():
        if base := texts(sent, "base"):
            lab.retarget(who.login, number, **base)
        changed = lab.edit_issue(who.login, number, **texts(sent, "title", "body", "state"))
    return Answer(shapes_thread.pull(lab.world, changed))


@router.get("/pulls/{number}/files")
def list_pull_files(number: int, request: Request, lab: Lab) -> Answer:
    one = lab.pull(number)
    head = one.as_pull.head_sha
    return listing(
        request,
        shapes_code.pull_changes(lab.world, one),
        lambda world, change: shapes_code.diff_entry(world, head, change),
    )


@router.get("/pulls/{number}/commits")
def list_pull_commits(number: int, request: Request, lab: Lab) -> Answer:
    pull = lab.pull(number).as_pull
    shas = lab.world.git.log(pull.base_sha, pull.head_sha)[:250]
    return listing(request, shas, shapes_code.commit)


@router.put("/pulls/{number}/merge")
def merge_pull(number: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    sha = lab.merge(who.login, number, **texts(sent, "commit_message", "sha"))
    return Answer({"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


# Reviews


@router.get("/pulls/{number}/reviews")
def list_reviews(number: int, request: Request, lab: Lab) -> Answer:
    return listing(request, lab.pull(number).as_pull.reviews, shapes_thread.review)


@router.post("/pulls/{number}/reviews")
def create_review(number: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    made = lab.submit_review(who.login, number, **texts(sent, "event", "body", "commit_id"))
    return Answer(shapes_thread.review(lab.world, made))


@router.get("/pulls/{number}/reviews/{review_id}")
def get_review(number: int, review_id: int, lab: Lab) -> Answer:
    return Answer(shapes_thread.review(lab.world, lab.review(number, review_id)))


@router.put("/pulls/{number}/reviews/{review_id}")
def update_review(number: int, review_id: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    changed = lab.edit_review(who.login, number, review_id, **texts(sent, "body"))
    return Answer(shapes_thread.review(lab.world, changed))


@router.put("/pulls/{number}/reviews/{review_id}/dismissals")
def dismiss_review(number: int, review_id: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    changed = lab.dismiss_review(who.login, number, review_id, **texts(sent, "message"))
    return Answer(shapes_thread.review(lab.world, changed))


# Threads and forks


@router.get("/issues/{number}/timeline")
def list_timeline(number: int, request: Request, lab: Lab) -> Answer:
    told = shapes_thread.timeline(lab.world, lab.issue(number))
    return listing(request, told, lambda _, shape: shape)


@router.put("/issues/{number}/lock")
def lock_issue(number: int, lab: Lab, who: Person, sent: Sent) -> Response:
    lab.lock(who.login, number, **texts(sent, "lock_reason"))
    return Response(status_code=204)


@router.delete("/issues/{number}/lock")
def unlock_issue(number: int, lab: Lab, who: Person) -> Response:
    lab.unlock(who.login, number)
    return Response(status_code=204)


@router.post("/forks")
def create_fork(lab: Lab, who: Person, sent: Sent) -> Answer:
    if sent.get("organization"):
        raise invalid("Fork", "organization", "invalid")
    return Answer(shapes.full_repository(lab.fork(who.login).world), 202)
