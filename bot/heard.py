"""What the deliveries in a thread's inbox say. Pure: payloads in, facts out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.facts import Message
from runner.record import Person


def of_pull(event: Mapping[str, Any]) -> bool:
    """Whether a delivery is about a pull request."""
    payload = event["payload"]
    return "pull_request" in payload or "pull_request" in payload.get("issue", {})


def message(event: Mapping[str, Any]) -> Message | None:
    """What may hold commands; None for another delivery."""
    if event["event"] != "issue_comment" or event["payload"]["action"] != "created":
        return None
    comment = event["payload"]["comment"]
    return Message(
        id=comment["id"],
        author=Person(login=comment["user"]["login"], id=comment["user"]["id"]),
        at=datetime.fromisoformat(comment["created_at"].replace("Z", "+00:00")),
        body=comment["body"] or "",
    )
