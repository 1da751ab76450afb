"""The cassettes: where they are, how strictly they are replayed, and `make record`.

    REGATTA_RECORD_TOKEN=… make record REPOSITORY=owner/name ISSUE=1 PULL=2 LOGIN=somebody

records them anew against github.com. It writes: a comment, labels, a check run, a picture and the
branch regatta-recorded, of which the check run, the picture's reference and the branch stay. Check
runs and deliveries need an App: REGATTA_RECORD_APP (its client id) and REGATTA_RECORD_KEY_FILE;
without them the App's cassette is left as it is, and checks are recorded as refused. No token is
kept.

Not recorded: reading, writing and app, all that lie there now. `tests.github.build` made them from
GitHub's example payloads, before PyGithub asked; it asks the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import vcr

from bot.github import AppAuth, GitHub
from tests.github.operations import TAPES, Subject, play

HERE = Path(__file__).parent / "cassettes"
API = "https://api.github.com"
STRICTLY = ("method", "scheme", "host", "port", "path", "query", "body")
KEPT = ("content-type", "date", "etag", "link", "location")  # headers of an answer


def subject() -> Subject:
    """What the cassettes are about."""
    return Subject(**json.loads((HERE / "subject.json").read_text()))


def expected(name: str, folder: Path = HERE) -> Any:
    """What the client made of the recorded answers when they were recorded."""
    return json.loads((folder / f"{name}.json").read_text())


def tape(mode: str, folder: Path = HERE) -> vcr.VCR:
    """A recorder; `none` replays and lets nothing else through."""
    return vcr.VCR(
        cassette_library_dir=str(folder),
        record_mode=mode,
        match_on=STRICTLY,
        filter_headers=["authorization", "user-agent", "connection", "accept-encoding"],
        before_record_response=without_secrets,
        decode_compressed_response=True,
    )


def client(credentials: Callable[[], str], about: Subject, api: str = API) -> GitHub:
    """The client. Its clock stands still, so that replaying gives the times of the recording."""
    return GitHub(
        about.repository,
        credentials,
        api=api,
        seconds_between_writes=0,
        monotonic=lambda: 0.0,
        sleep=lambda _: None,
    )


def record(
    name: str,
    about: Subject,
    credentials: Callable[[], str],
    *,
    folder: Path = HERE,
    api: str = API,
) -> None:
    """Record one cassette, and what the client makes of it."""
    (folder / f"{name}.yaml").unlink(missing_ok=True)
    with tape("all", folder).use_cassette(f"{name}.yaml"):
        told = play(TAPES[name](client(credentials, about, api), about))
    write(folder / f"{name}.json", told)


def replay(
    name: str,
    about: Subject,
    credentials: Callable[[], str],
    *,
    folder: Path = HERE,
    api: str = API,
) -> Any:
    """What the client makes of a cassette. Raises where it asks anything else than was recorded,
    or less."""
    with tape("none", folder).use_cassette(f"{name}.yaml") as cassette:
        told = play(TAPES[name](client(credentials, about, api), about))
    if not cassette.all_played or cassette.play_count != len(cassette):
        raise AssertionError(f"{name}: {cassette.play_count} of {len(cassette)} were asked for")
    return told


def without_secrets(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as it is kept."""
    answer["headers"] = {k: v for k, v in answer["headers"].items() if k.lower() in KEPT}
    body = answer["body"]["string"]
    try:
        found = json.loads(body)
    except ValueError:
        return answer
    if isinstance(found, dict) and "token" in found:
        body = json.dumps(found | {"token": "not-kept"}).encode()
    answer["body"]["string"] = body
    return answer


def _record_all(about: Subject) -> None:
    token = os.environ.get("REGATTA_RECORD_TOKEN", "")
    app, key = (os.environ.get(f"REGATTA_RECORD_{name}") for name in ("APP", "KEY_FILE"))
    if not token and not app:
        sys.exit("Say who records: REGATTA_RECORD_TOKEN, or REGATTA_RECORD_APP with its key.")
    for name in TAPES:
        credentials: Callable[[], str] = lambda: token  # noqa: E731
        if app and key:
            credentials = AppAuth(app, Path(key).read_text(), about.repository)
        elif name == "app":
            continue
        record(name, about, credentials)
    write(HERE / "subject.json", asdict(about))


def write(path: Path, told: Any) -> None:
    """JSON for people to read."""
    path.write_text(json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    repository, issue, pull, login = sys.argv[1:]
    since = (datetime.now(UTC) - timedelta(days=7)).isoformat(timespec="seconds")
    _record_all(Subject(repository, int(issue), int(pull), login, since))
