"""The policy, who may do what on a repository: `.github/regatta.yml` of its default branch. Pure.

A missing or unreadable file permits only to stop what runs; everybody who asks is told.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from runner.lib import problems
from runner.lib.base_record import Record
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Problem, near, quoted
from runner.schema import devices
from runner.schema.record import EVERYTHING

FORM_PATH = ".github/ISSUE_TEMPLATE/experiment.yml"

PATH = ".github/regatta.yml"
ROLES = ("read", "triage", "write", "maintain", "admin")  # GitHub's own; there may be others
Command = Literal["run", "cancel", "retry", "reproduce", "plan"]
Hours = Annotated[float, Field(ge=0)]


def _role(name: str) -> str:
    meant = "" if name in ROLES else near(name, ROLES)
    if meant or not name.strip() or name == "none":
        raise _cannot_be_meant(f"no role is {quoted(name)}{meant}")
    return name


def _login(name: str) -> str:
    if not name.strip("@ "):
        raise _cannot_be_meant("must be a login, not nothing")
    if name.startswith("@"):
        raise _cannot_be_meant(f"write the login without its `@`, not {quoted(name)}")
    return name


def _kind(name: str) -> str:
    if name not in devices.KINDS:
        known = devices.listed(devices.KINDS)
        raise _cannot_be_meant(f"the lab knows no hardware {quoted(name)}; it has {known}")
    return name


def _cannot_be_meant(words: str) -> PydanticCustomError:
    """An error about values that the form allows. `told` has the message as it is."""
    return PydanticCustomError("cannot_work", "{words}", {"words": words})


_Kind = Annotated[str, AfterValidator(_kind)]
_AnyKind = Annotated[str, AfterValidator(lambda name: name if name == EVERYTHING else _kind(name))]


class Permitted(Record):
    """Who may give a command: GitHub's roles, and users by login."""

    roles: tuple[Annotated[str, AfterValidator(_role)], ...] = ("maintain", "admin")
    people: tuple[Annotated[str, AfterValidator(_login)], ...] = ()


class Rules(Record):
    """The content of the file."""

    # For a command that is not named here, `Permitted()`.
    commands: dict[Command, Permitted] = Field(default_factory=dict)
    settle_seconds: int = Field(default=30, ge=1, le=3600)  # between a plan and a bare `/run`
    own: bool = True  # whether people may approve their own pull requests
    two_approvers_from: Hours | None = None  # device-hours from which two people must approve
    # By kind of hardware, "*" for all together.
    device_hours_per_person_and_month: dict[_AnyKind, Hours] = Field(default_factory=dict)
    kinds: tuple[_Kind, ...] | None = None  # hardware that may be used; None: all
    # Wall-clock hours after which an execution without an estimate is stopped.
    hours_without_estimate: Annotated[float, Field(gt=0)] = 4.0


class Policy(Rules):
    """The file's content, and the commit it was read at."""

    sha: str = ""  # the default branch's commit
    problems: tuple[str, ...] = ()  # why nobody may do anything but `/cancel`; sentences

    def permitted(self, command: Command) -> Permitted:
        """Who may give the command."""
        return self.commands.get(command, Permitted())

    def permits(self, command: Command, login: str, role: str) -> bool:
        """Whether a user with this role may give the command."""
        if self.problems and command != "cancel":
            return False
        permitted = self.permitted(command)
        by_name = login.lower() in {name.lower() for name in permitted.people}
        return role in permitted.roles or by_name


def parse(content: bytes | None, sha: str) -> Policy:
    """The policy in the file's bytes (None: there is no file) at the commit `sha`. Problems, each
    with its line, become `problems`; such a policy permits only the default for cancel."""
    if content is None:
        words = f"there is no {PATH} on the default branch; `regatta init` writes one"
        return Policy(sha=sha, problems=(words,))
    try:
        document = problems.read(content.decode(), PATH, "`commands` and `settle_seconds`")
        complaints = Complaints(document)
        rules = complaints.validated(Rules)
        complaints.end()
    except UnicodeDecodeError:
        return Policy(sha=sha, problems=(str(Problem(PATH, 1, "", "it is not UTF-8 text")),))
    except BadExperiment as error:
        return Policy(sha=sha, problems=tuple(map(str, error.problems)))
    return Policy(**dict(rules), sha=sha)
