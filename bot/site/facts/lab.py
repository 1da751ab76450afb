"""All facts for the site."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from bot.site.base.files import made_from
from bot.site.facts.entries import Entry, Seal, read_seal
from bot.site.facts.leaderboard import Group, groups
from bot.site.facts.memory import Memory, listed
from bot.site.facts.reproductions import Again, originals, reproductions
from runner.analysis import designs, speedrun_ranking, speedrun_rows, which_runs_count
from runner.analysis.which_runs_count import Outcome, Registration, Review
from runner.schema import lab_config, record
from runner.schema.tracks import Track
from runner.store.store import Store


@dataclass(frozen=True)
class Lab:
    """All facts for the site."""

    entries: tuple[Entry, ...]  # newest first
    wishlist: tuple[record.Preregistration, ...]  # sealed, and nothing has run for it
    repositories: dict[int, str]  # names by id, as far as this store's executions contain them
    tracks: Mapping[str, Track]  # of the lab, by name
    others: tuple[speedrun_ranking.Row, ...] = ()  # of speedruns, not in this store
    left_out: Mapping[str, str] = field(default_factory=dict)  # executions, with the problem
    refused: tuple[record.Approval, ...] = ()  # what the policy refused agents

    @property
    def repository(self) -> str | None:
        """Its repository's name, `owner/name`; None where executions name none, or several."""
        return next(iter(self.repositories.values())) if len(self.repositories) == 1 else None

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups of comparable rows, most rows first."""
        return groups(self.entries, self.originals, self.again)

    @cached_property
    def originals(self) -> dict[str, Entry]:
        """{re-run: the execution that it reproduces}."""
        return originals(self.entries)

    @cached_property
    def again(self) -> dict[str, dict[str, Again]]:
        """{execution: {arm: its re-runs}}."""
        return reproductions(self.entries, self.originals)

    @cached_property
    def reviews(self) -> dict[tuple[int, int], Review]:
        """For each preregistration, by repository and issue, what counts under it."""
        asked: dict[tuple[int, int], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.asked and entry.seal:
                asked[entry.asked].append(entry)
        return {key: self._review(under) for key, under in asked.items()}

    def _review(self, under: list[Entry]) -> Review:
        seal = under[0].seal
        assert seal
        outcomes = tuple(Outcome(one.execution, one.result, one.scores) for one in under)
        plans = [one.plan for one in under]
        earlier = which_runs_count.begun_before(seal, plans, self._begun)
        return which_runs_count.review(Registration(seal, under[0].edited, outcomes, earlier))

    @cached_property
    def _begun(self) -> dict[str, tuple[datetime, str]]:
        """When and by which execution each run was first started, for runs that started before the
        last seal."""
        last = max(entry.seal.at for entry in self.entries if entry.seal)
        found: dict[str, tuple[datetime, str]] = {}
        for entry in reversed(self.entries):
            if entry.state != "voided" and entry.execution.at < last:
                for run in designs.same_run(entry.plan).values():
                    found.setdefault(run, (entry.execution.at, entry.execution.id))
        return found

    def review(self, entry: Entry) -> Review | None:
        """What counts under this execution's preregistration; None if it has none."""
        return self.reviews.get(entry.asked) if entry.asked else None

    def why_not(self, entry: Entry) -> str | None:
        """Why this execution's verdicts are not those of its preregistration; None if they are."""
        review = self.review(entry)
        return review.of(entry.execution.id).why_not if review else None

    @cached_property
    def told(self) -> str:
        """A digest of everything here."""
        states = (f"{entry.execution.id} {entry.state} {entry.told}" for entry in self.entries)
        wished = (seal.digest() for seal in self.wishlist)
        left = (f"{id} {why}" for id, why in self.left_out.items())
        tracks = (track.digest() for track in self.tracks.values())
        others = (row.id for row in self.others)
        refused = (one.digest() for one in self.refused)
        named = (f"{id} {name}" for id, name in self.repositories.items())
        return made_from(*map("\n".join, (states, wished, left, tracks, others, refused, named)))

    def without(self, faults: Mapping[str, str]) -> "Lab":
        """The lab without these executions, by id with the problem of each."""
        if not faults:
            return self
        stay = tuple(entry for entry in self.entries if entry.execution.id not in faults)
        return replace(self, entries=stay, left_out=dict(self.left_out) | dict(faults))

    @property
    def running(self) -> list[Entry]:
        """Executions without a result."""
        return [entry for entry in self.entries if entry.result is None]

    @property
    def competing(self) -> list[speedrun_ranking.Row]:
        """The speedrun rows of all executions, and the others."""
        ended = [one for one in self.entries if one.result and one.plan.speedrun]
        mine = ((one.execution, one.result, one.replays) for one in ended if one.result)
        return speedrun_rows.beside(self.others, speedrun_rows.together(mine))

    @property
    def counted(self) -> list[record.Verdict]:
        """The verdicts that count for their preregistrations, and those of plans without one."""
        again = self.originals
        return [
            verdict
            for entry in self.entries
            if entry.result and entry.result.verdicts and not self.why_not(entry)
            if entry.execution.id not in again
            for verdict in entry.result.verdicts
        ]

    @property
    def without_figures(self) -> list[Entry]:
        """Executions that ended without any figure."""
        return [entry for entry in self.entries if entry.result and not entry.has_figures]


def read_lab(
    store: Store,
    remembered: Memory | None = None,
    tracks: Mapping[str, Track] | None = None,
    others: tuple[speedrun_ranking.Row, ...] = (),
) -> Lab:
    """All facts from the records, with the lab's tracks (None: the defaults). Runs come without
    their curves. Executions with unreadable records are left out. `others`: see `Lab`."""
    seals: dict[tuple[int, int], Seal] = {
        (int(repository), int(issue)): seal
        for repository in record.names(store, "preregistrations")
        for issue in record.names(store, f"preregistrations/{repository}")
        if (seal := read_seal(store, int(repository), int(issue)))
    }
    memory = remembered or Memory()
    found = memory.entries(store)
    # The newest name of a repository counts.
    repositories = {
        origin.repository: origin.repository_name
        for entry in sorted(found, key=lambda entry: entry.execution.at)
        if (origin := entry.execution.origin) and not _is_kept(store, entry)
    }
    entries = sorted(
        (
            one.under(seals.get(one.asked) if one.asked else None)
            for one in (_linked(one, repositories) for one in found)
        ),
        key=lambda entry: (entry.execution.at, entry.execution.id),
        reverse=True,
    )
    asked = {entry.asked for entry in entries}
    wished = [seal for key, (seal, _) in seals.items() if key not in asked]
    return Lab(
        entries=tuple(entries),
        wishlist=tuple(sorted(wished, key=lambda seal: (seal.at, seal.issue), reverse=True)),
        repositories=repositories,
        tracks=lab_config.defaults().tracks if tracks is None else tracks,
        others=others,
        left_out=memory.unread,
        refused=tuple(sorted(_refused(store, found), key=lambda one: (one.at, one.pull, one.id))),
    )


def _refused(store: Store, entries: Iterable[Entry]) -> Iterator[record.Approval]:
    """The plans of agents that the policy refused. A lab without agents looks for none."""
    origins = [entry.execution.origin for entry in entries]
    if not any(origin and origin.agent for origin in origins):
        return
    approved = {record.command_of(origin.approval) for origin in origins if origin}
    for path, _ in listed(store, "approvals"):
        name = path.rpartition("/")[2]
        if name.startswith("p") and name not in approved:
            decided = record.require(store, path, record.Approval)
            if not decided.approved:
                yield decided


def _is_kept(store: Store, entry: Entry) -> bool:
    return store.is_from_another(f"records/executions/{entry.execution.id}/execution.json")


def _linked(entry: Entry, repositories: Mapping[int, str]) -> Entry:
    """The entry without the name of its repository, if that is not one of the lab's: readers may
    not find its threads."""
    origin = entry.execution.origin
    if origin is None or origin.repository in repositories:
        return entry
    execution = entry.execution.model_copy(
        update={"origin": origin.model_copy(update={"repository_name": ""})}
    )
    return entry.model_copy(update={"execution": execution})
