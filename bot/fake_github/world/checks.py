"""Check runs: what the bot says of a commit, and the buttons on it that people press."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from bot.fake_github.world import shapes_code
from bot.fake_github.world.actions import known
from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import forbidden, invalid, not_found, unprocessable
from bot.fake_github.world.state import CheckRun, moment

LONGEST_OUTPUT = 65_535
CODES = {  # what GitHub calls pydantic's errors; the rest is "invalid"
    "missing": "missing_field", "string_too_short": "missing_field",
    "string_too_long": "too_long", "too_long": "too_long",
}  # fmt: skip
Moment = Annotated[datetime, BeforeValidator(moment)]


class Button(BaseModel):
    """Its texts are no longer than GitHub shows."""

    label: str = Field(min_length=1, max_length=20)
    identifier: str = Field(min_length=1, max_length=20)
    description: str = Field(min_length=1, max_length=40)


class Output(BaseModel):
    title: str = Field(min_length=1)
    summary: str = Field(min_length=1, max_length=LONGEST_OUTPUT)
    text: str | None = Field(None, max_length=LONGEST_OUTPUT)
    images: list[dict[str, str]] = []
    annotations: list[dict[str, object]] = []


class Given(BaseModel):
    """What a request says of a check run."""

    name: str | None = None
    head_sha: str | None = None
    status: Literal["queued", "in_progress", "completed"] | None = None
    conclusion: (
        Literal[
            "action_required", "cancelled", "failure", "neutral", "success", "skipped", "stale",
            "timed_out",
        ]
        | None
    ) = None  # fmt: skip
    external_id: str | None = None
    details_url: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    output: Output | None = None
    actions: list[Button] | None = Field(None, max_length=3)


def _read(given: dict[str, Any]) -> Given:
    try:
        return Given.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(part for part in first["loc"] if isinstance(part, str))
        raise invalid("CheckRun", field, CODES.get(first["type"], "invalid")) from None


class Checks(Code):
    def create_check_run(self, login: str, /, **fields: Any) -> CheckRun:
        with self.changing() as now:
            self._need_checks(login)
            given = _read(fields)
            if not given.name:
                raise invalid("CheckRun", "name", "missing_field")
            head_sha = given.head_sha or ""
            if self.world.git.kind(head_sha) != "commit":
                raise unprocessable(f"No commit found for SHA: {head_sha}")
            run = CheckRun(self.world.new_id(), given.name, head_sha, now, started_at=now)
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
        """Somebody with write access presses a button of a check run."""
        with self.changing():
            user, run = self.user(login), self.check_run(run_id)
            self.need(user, "write")
            if identifier not in [each["identifier"] for each in run.actions]:
                raise not_found(f"the check run has no button {identifier!r}")
            seen = shapes_code.check_run(self.world, run)
            seen["check_suite"] = shapes_code.check_suite(self.world, run)
            pressed = {"identifier": identifier}
            told = {"action": "requested_action", "check_run": seen, "requested_action": pressed}
            self.emit("check_run", user, **told)

    def check_run(self, run_id: int) -> CheckRun:
        return known(self.world.checks, run_id)

    def check_runs(self, sha: str, *, every: bool = False) -> list[CheckRun]:
        """The check runs of a commit, newest first; of each name the newest, or every one."""
        with self.world.lock:
            runs = [run for run in self.world.checks.values() if run.head_sha == sha]
        runs.sort(key=lambda run: run.id, reverse=True)
        if every:
            return runs
        newest = {run.name: run for run in reversed(runs)}
        return [run for run in runs if newest[run.name] is run]

    def _need_checks(self, login: str) -> None:
        if not self.is_app(self.user(login)):
            raise forbidden("Resource not accessible by personal access token")

    def _fill(self, run: CheckRun, given: Given) -> None:
        if given.status == "completed" and not (given.conclusion or run.conclusion):
            raise invalid("CheckRun", "conclusion", "missing_field")
        told = given.model_dump(exclude_unset=True, exclude_none=True, exclude={"head_sha"})
        output = told.pop("output", {})
        output["annotations"] = run.annotations + output.get("annotations", [])
        for name, value in (told | output).items():
            setattr(run, name, value)
        if given.conclusion:
            run.status = "completed"
            run.completed_at = given.completed_at or self.world.clock.now()
        elif given.status in ("queued", "in_progress"):
            run.conclusion = run.completed_at = None
