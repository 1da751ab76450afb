"""Who may do what on a repository: `.github/regatta.yml` of its default branch. Pure.

A file that is not there or cannot be read permits nothing but to stop what runs, and says so to
whoever asks.
"""

from typing import Annotated, Literal

from pydantic import Field

from runner.lib import problems, yaml_lines
from runner.lib.base_record import Record
from runner.lib.problems import BadExperiment, Complaints, Problem, Said, near, quoted
from runner.schema import devices
from runner.schema.record import EVERYTHING

FORM_PATH = ".github/ISSUE_TEMPLATE/experiment.yml"

PATH = ".github/regatta.yml"
ROLES = ("read", "triage", "write", "maintain", "admin")  # GitHub's own; a lab may have others
Command = Literal["run", "cancel", "retry", "reproduce", "plan"]
Hours = Annotated[float, Field(ge=0)]


class Permitted(Record):
    """Who may give a command: GitHub's roles, and people by login."""

    roles: tuple[str, ...] = ("maintain", "admin")
    people: tuple[str, ...] = ()


class Rules(Record):
    """What the file may say."""

    commands: dict[Command, Permitted] = Field(
        default_factory=dict
    )  # of what is not named, `Permitted()`
    settle_seconds: int = Field(default=30, ge=1, le=3600)  # between a plan and a bare `/run`
    own: bool = True  # whether one may approve one's own pull request
    two_approvers_from: Hours | None = None  # device-hours from which two people must approve
    # By kind of hardware, "*" for all together.
    device_hours_per_person_and_month: dict[str, Hours] = Field(default_factory=dict)
    kinds: tuple[str, ...] | None = None  # hardware that may be used; None: all of the lab's
    # Wall-clock hours after which an execution is stopped whose duration nobody can estimate.
    hours_without_estimate: Annotated[float, Field(gt=0)] = 4.0


class Policy(Rules):
    """What the file says, and where that was read."""

    sha: str = ""  # of the default branch's commit that it was read at
    problems: tuple[str, ...] = ()  # why nobody may do anything but `/cancel`; sentences

    def permitted(self, command: Command) -> Permitted:
        """Who may give the command."""
        return self.commands.get(command, Permitted())

    def permits(self, command: Command, login: str, role: str) -> bool:
        """Whether somebody with this role may give the command."""
        if self.problems and command != "cancel":
            return False
        permitted = self.permitted(command)
        by_name = login.lower() in {name.lower() for name in permitted.people}
        return role in permitted.roles or by_name


def parse(content: bytes | None, sha: str) -> Policy:
    """The policy in the file's bytes (None: there is no file) at the commit `sha`. What is wrong
    with it, each at its line, becomes `problems`; such a policy permits nothing but, by default, to
    cancel."""
    if content is None:
        words = f"there is no {PATH} on the default branch; `regatta init` writes one"
        return Policy(sha=sha, problems=(words,))
    try:
        document = problems.read(content.decode(), PATH, "`commands` and `settle_seconds`")
        complaints = Complaints(document)
        rules = complaints.validated(Rules)
        complaints.say_all(_senseless(rules))
        complaints.end()
    except UnicodeDecodeError:
        return Policy(sha=sha, problems=(str(Problem(PATH, 1, "", "it is not UTF-8 text")),))
    except BadExperiment as error:
        return Policy(sha=sha, problems=tuple(map(str, error.problems)))
    return Policy(**dict(rules), sha=sha)


def _senseless(rules: Rules) -> Said:
    """Words that the form allows and that cannot be meant, and where."""
    for command, permitted in rules.commands.items():
        for index, role in enumerate(permitted.roles):
            meant = "" if role in ROLES else near(role, ROLES)
            if meant or not role.strip() or role == "none":
                yield ("commands", command, "roles", index), f"no role is {quoted(role)}{meant}"
        for index, login in enumerate(permitted.people):
            if not login.strip("@ "):
                yield ("commands", command, "people", index), "must be a login, not nothing"
            elif login.startswith("@"):
                words = f"write the login without its `@`, not {quoted(login)}"
                yield ("commands", command, "people", index), words
    named: dict[yaml_lines.Path, str] = {
        ("kinds", n): kind for n, kind in enumerate(rules.kinds or ())
    }
    key = "device_hours_per_person_and_month"
    named |= {(key, kind): kind for kind in getattr(rules, key) if kind != EVERYTHING}
    for path, kind in named.items():
        if kind not in devices.KINDS:
            known = devices.listed(devices.KINDS)
            words = f"the lab knows no hardware {quoted(kind)}; it has {known}"
            yield path, words
