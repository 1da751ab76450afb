"""Check runs: the bot's statements about a commit, and the buttons that people press on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bot.fake_github.world import shapes_code
from bot.fake_github.world.actions import known
from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import forbidden, invalid, not_found, unprocessable
from bot.fake_github.world.state import CheckFields, CheckRun

CODES = {  # GitHub's names of pydantic's errors; all others are "invalid"
    "missing": "missing_field", "string_too_short": "missing_field",
    "string_too_long": "too_long", "too_long": "too_long",
}  # fmt: skip


def _read(fields: Mapping[str, Any]) -> CheckFields:
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        found = CheckFields.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(part for part in first["loc"] if isinstance(part, str))
        raise invalid("CheckRun", field, CODES.get(first["type"], "invalid")) from None
    for name in ("title", "summary") if "output" in given else ():
        if not getattr(found, name):
            raise invalid("CheckRun", f"output.{name}", "missing_field")
    return found


class Checks(Code):
    def create_check_run(self, login: str, /, **fields: Any) -> CheckRun:
        with self.changing() as now:
            self._need_checks(login)
            given = _read(fields)
            if given.name is None:
                raise invalid("CheckRun", "name", "missing_field")
            head_sha = given.head_sha
            if head_sha is None or self.world.git.kind(head_sha) != "commit":
                raise unprocessable(f"No commit found for SHA: {head_sha}")
            id = self.world.new_id()
            run = CheckRun(id=id, name=given.name, head_sha=head_sha, created_at=now)
            run.started_at = now
            self._fill(run, given)
            self.world.checks[run.id] = run
            return run

    def update_check_run(self, login: str, run_id: int, /, **fields: Any) -> CheckRun:
        with self.changing():
            self._need_checks(login)
            run = self.check_run(run_id)
            self._fill(run, _read(fields))
            return run

    def press(self, login: str, run_id: int, identifier: str) -> None:
        """A user with write access presses a button of a check run."""
        with self.changing():
            user, run = self.user(login), self.check_run(run_id)
            self.need(user, "write")
            if identifier not in [each.identifier for each in run.actions]:
                raise not_found(f"the check run has no button {identifier!r}")
            seen = shapes_code.check_run(self.world, run)
            seen["check_suite"] = shapes_code.check_suite(self.world, run)
            pressed = {"identifier": identifier}
            told = {"action": "requested_action", "check_run": seen, "requested_action": pressed}
            self.emit("check_run", user, **told)

    def check_run(self, run_id: int) -> CheckRun:
        return known(self.world.checks, run_id)

    def check_runs(self, sha: str, *, every: bool = False) -> list[CheckRun]:
        """The check runs of a commit, newest first; for each name the newest, or with `every`
        all."""
        with self.world.lock:
            runs = [run for run in self.world.checks.values() if run.head_sha == sha]
        newest = list({run.name: run for run in runs}.values())
        return sorted(runs if every else newest, key=lambda run: run.id, reverse=True)

    def _need_checks(self, login: str) -> None:
        if not self.is_app(self.user(login)):
            raise forbidden("Resource not accessible by personal access token")

    def _fill(self, run: CheckRun, given: CheckFields) -> None:
        if given.status == "completed" and not (given.conclusion or run.conclusion):
            raise invalid("CheckRun", "conclusion", "missing_field")
        given.annotations = [*run.annotations, *given.annotations]
        for name in given.model_fields_set - {"head_sha"}:
            setattr(run, name, getattr(given, name))
        if given.conclusion:
            run.status = "completed"
            run.completed_at = given.completed_at or self.world.clock.now()
        elif given.status in ("queued", "in_progress"):
            run.conclusion = run.completed_at = None
