"""The policy, who may do what on a repository: `.github/regatta/policy.yml` of its default branch.
Pure.

A missing or unreadable file permits only to stop what runs; everybody who asks is told.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from runner.lib import problems
from runner.lib.base_record import Record
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Problem, Said, near, quoted
from runner.schema import lab_config
from runner.schema.devices import Kind, listed
from runner.schema.record import EVERYTHING, Person

FORM_PATH = ".github/ISSUE_TEMPLATE/experiment.yml"

PATH = lab_config.POLICY
OLD_PATH = ".github/regatta.yml"  # of labs that were set up before; nothing in it counts
INIT = "`regatta init` writes one"
ROLES = ("read", "triage", "write", "maintain", "admin")  # GitHub's own; there may be others
Command = Literal["run", "cancel", "retry", "reproduce", "plan"]
Hours = Annotated[float, Field(ge=0)]
AGENT = "agent"  # in the place of a role
APP = "[bot]"  # at the end of the login of a GitHub App, and of nobody else's


CUSTOM = "custom/"  # before the name of an organization's own role that looks like one of GitHub's


def _role(name: str) -> str:
    if name.startswith(CUSTOM) and name.removeprefix(CUSTOM).strip():
        return name.removeprefix(CUSTOM)
    meant = "" if name in ROLES else near(name, ROLES)
    if meant or not name.strip() or name == "none":
        own = f"; for a role of your organization's own, write `{CUSTOM}{name}`" if meant else ""
        raise _cannot_be_meant(f"no role is {quoted(name)}{own}{meant}")
    return name


def _login(name: str) -> str:
    if not name.strip("@ "):
        raise _cannot_be_meant("must be a login, not nothing")
    if name.startswith("@"):
        raise _cannot_be_meant(f"write the login without its `@`, not {quoted(name)}")
    return name


def _cannot_be_meant(words: str) -> PydanticCustomError:
    """An error about values that the form allows. `told` has the message as it is."""
    return PydanticCustomError("cannot_work", "{words}", {"words": words})


class Permitted(Record):
    """Who may give a command: GitHub's roles, and users by login."""

    roles: tuple[Annotated[str, AfterValidator(_role)], ...] = ("maintain", "admin")
    people: tuple[Annotated[str, AfterValidator(_login)], ...] = ()


class Allowance(Record):
    """What an agent may propose. It never approves anything, whatever its role is."""

    sponsor: Annotated[str, AfterValidator(_login)]  # the person who answers for it
    id: int | None = None  # the account's number; None: whoever has the login
    kinds: tuple[str, ...] = ("cpu",)  # hardware that its proposals may ask for
    # Of all its proposals together, per calendar month (UTC), whoever approved them.
    device_hours_per_month: Hours
    open_proposals: int = Field(default=3, ge=1, le=1000)  # pull requests, at a time
    # Who approves the first gate: the policy itself, for declarations without own code, on CPUs;
    # or a maintainer, who approves everything else in any case.
    gate_1: Literal["policy", "maintainer"] = "maintainer"


class Rules(Record):
    """The content of the file."""

    # For a command that is not named here, `Permitted()`.
    commands: dict[Command, Permitted] = Field(default_factory=dict)
    settle_seconds: int = Field(default=30, ge=1, le=3600)  # between a plan and a bare `/run`
    own: bool = True  # whether people may approve their own pull requests
    two_approvers_from: Hours | None = None  # device-hours from which two people must approve
    # By kind of hardware, "*" for all together.
    device_hours_per_person_and_month: dict[str, Hours] = Field(default_factory=dict)
    kinds: tuple[str, ...] | None = None  # hardware that may be used; None: all
    # Wall-clock hours after which an execution without an estimate is stopped.
    hours_without_estimate: Annotated[float, Field(gt=0, le=1e6)] = 4.0
    # Wall-clock hours that Ray may let an execution wait for room, after which it fails.
    hours_pending: Annotated[float, Field(gt=0, le=1e6)] = 72.0
    # By login; of an App, with its `[bot]`. Every other bot is ignored.
    agents: dict[Annotated[str, AfterValidator(_login)], Allowance] = Field(default_factory=dict)


class Policy(Rules):
    """The file's content, and the commit it was read at."""

    sha: str = ""  # the default branch's commit
    problems: tuple[str, ...] = ()  # why nobody may do anything but `/cancel`; sentences

    def permitted(self, command: Command) -> Permitted:
        """Who may give the command."""
        return self.commands.get(command, Permitted())

    def agent(self, login: str, id: int = 0) -> Allowance | None:
        """What the agent with this login, or with this number of its account, may propose; None if
        it is not an agent."""
        named = (of for name, of in self.agents.items() if _same(name, login))
        return next(named, None) or next((of for of in self.agents.values() if of.id == id), None)

    def allowance(self, who: Person) -> Allowance | None:
        """The same for an account, which may have got an agent's login after the agent."""
        allowed = self.agent(who.login, who.id)
        return allowed if allowed and allowed.id in (None, who.id) else None

    def permits(self, command: Command, login: str, role: str) -> bool:
        """Whether a user with this role may give the command. An agent may give none."""
        if (self.problems and command != "cancel") or self.agent(login) or role == AGENT:
            return False
        permitted = self.permitted(command)
        return role in permitted.roles or any(_same(name, login) for name in permitted.people)


def parse(files: Mapping[str, bytes], sha: str, kinds: Mapping[str, Kind] | None) -> Policy:
    """The policy in the lab's files, by path, at the commit `sha`, of a lab with these kinds of
    device (None: they are unreadable). Problems, each with its line, become `problems`; such a
    policy permits only the default for cancel."""
    content = files.get(PATH)
    if content is None:
        mend = f"move the old file: `git mv {OLD_PATH} {PATH}`" if OLD_PATH in files else INIT
        words = f"there is no {PATH} on the default branch; {mend}"
        return Policy(sha=sha, problems=(words,))
    try:
        document = problems.read(content.decode(), PATH, "`commands` and `settle_seconds`")
        complaints = Complaints(document)
        complaints.say_all(_unknown_kinds(document.value, kinds))
        rules = complaints.validated(Rules)
        complaints.say_all(_agents_as_people(rules))
        complaints.end()
    except UnicodeDecodeError:
        return Policy(sha=sha, problems=(str(Problem(PATH, 1, "", "it is not UTF-8 text")),))
    except BadExperiment as error:
        return Policy(sha=sha, problems=tuple(map(str, error.problems)))
    return Policy(**dict(rules), sha=sha)


def _unknown_kinds(said: Mapping[str, Any], kinds: Mapping[str, Kind] | None) -> Said:
    """Hardware that the lab does not have, or that experiments may not ask for."""
    here = [name for name, kind in (kinds or {}).items() if kind.on_ray]
    agents = said.get("agents")
    every: list[tuple[tuple[str, ...], Any]] = [
        ((key,), said.get(key)) for key in ("kinds", "device_hours_per_person_and_month")
    ]
    every += [
        (("agents", str(login), "kinds"), of.get("kinds"))
        for login, of in (agents.items() if isinstance(agents, dict) else ())
        if isinstance(of, dict)
    ]
    for where, given in every:
        places: dict[Any, Any] = dict(enumerate(given)) if isinstance(given, list) else {}
        places |= {name: name for name in given} if isinstance(given, dict) else {}
        for place, name in places.items():
            if kinds is not None and isinstance(name, str) and name not in (*here, EVERYTHING):
                words = f"the lab knows no hardware {quoted(name)}; it has {listed(here)}"
                yield (*where, place), words


def _agents_as_people(rules: Rules) -> Said:
    """Agents that would approve, or answer for agents."""
    for command, permitted in rules.commands.items():
        for place, name in enumerate(permitted.people):
            if any(_same(name, agent) for agent in rules.agents):
                words = f"{quoted(name)} is an agent, and agents approve nothing; take it out"
                yield ("commands", command, "people", place), words
    for login, agent in rules.agents.items():
        if agent.sponsor.lower().endswith(APP) or any(
            _same(agent.sponsor, other) for other in rules.agents
        ):
            words = f"{quoted(agent.sponsor)} is not a person; name one who answers for it"
            yield ("agents", login, "sponsor"), words


def _same(one: str, other: str) -> bool:
    """Whether two logins are one account's: GitHub ignores case."""
    return one.lower() == other.lower()
