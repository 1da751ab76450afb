"""What a lab decides beside its policy: its kinds of device, its speedrun tracks and its corpora.

The package has a default of each file. A file in the lab's folder, `.github/regatta/`, is merged
into the default as RFC 7396 (JSON Merge Patch) says: what it names is added or replaced, and `null`
takes it away. Whoever starts something reads the folder once and hands on what it said: the bot
from the default branch on GitHub, the terminal from the checkout it is called in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from runner.lib import problems, yaml_lines
from runner.lib.base_record import Record
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Document, Problem, Said, near
from runner.schema import corpora
from runner.schema.corpora import Corpus
from runner.schema.devices import Kind, listed
from runner.schema.tracks import NEEDS, Scored, Terms, Track

FOLDER = ".github/regatta"
NAMES = ("policy", "tracks", "devices", "corpora")
POLICY, TRACKS, DEVICES, CORPORA = FILES = tuple(f"{FOLDER}/{name}.yml" for name in NAMES)
DEFAULTS = Path(__file__).parent / "defaults"

PLAIN = r"^[A-Za-z0-9 .,()/+-]{1,80}$"  # in a comment it means nothing but itself
MOST = 1e9  # of anything a device has or costs: products of these stay numbers
Above = Annotated[float, Field(gt=0, le=MOST)]
NotBelow = Annotated[float, Field(ge=0, le=MOST)]
Peak = Annotated[float, Field(ge=1, le=1e30)]
Chips = Annotated[int, Field(ge=1, le=MOST)]
Shape = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,5}(x[0-9]{1,5}){1,2}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


@dataclass(frozen=True)
class LabConfig:
    """A lab's kinds of device, its tracks and its corpora, by name."""

    devices: Mapping[str, Kind]
    tracks: Mapping[str, Track]
    corpora: Mapping[str, Corpus] = field(default_factory=dict)  # by name@version


class _Track(Terms):
    data: str  # a name of `data`
    spread: Annotated[float, Field(ge=1e-9, le=1)]  # squared, it is still a number above 0


class _Tracks(Record):
    data: dict[Name, Scored] = Field(default_factory=dict)
    tracks: dict[Name, _Track] = Field(default_factory=dict)


class _Kind(BaseModel):
    """A `Kind` as it is written."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    description: Annotated[str, StringConstraints(pattern=PLAIN)]
    peak_flops: Peak
    platform: Literal["cpu", "gpu", "tpu"]
    memory_gib: Above | None = None
    ray_cpus: NotBelow = 0
    ray_gpus: NotBelow = 0
    price: NotBelow | None = None
    spot_price: NotBelow | None = None
    ray_tpu: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{0,40}$")] = ""
    topologies: dict[Chips, Shape] = Field(default_factory=dict)
    devices_per_host: Chips = 1


class _Devices(BaseModel):
    devices: dict[Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,40}$")], _Kind]


class _Corpora(Record):
    corpora: dict[corpora.Name, Corpus]


def parse(files: Mapping[str, bytes]) -> LabConfig:
    """What the files of a lab's folder say, by path. Raises BadExperiment with all that is wrong
    with any of them."""
    wrong = list(_unknown(files))
    devices, tracks = dict[str, Kind](), dict[str, Track]()
    try:
        devices = _devices(_merged(DEVICES, files))
    except BadExperiment as error:
        wrong += error.problems
    named = dict[str, Corpus]()
    try:
        named = _corpora(_merged(CORPORA, files))
    except BadExperiment as error:
        wrong += error.problems
    try:
        tracks = _tracks(_merged(TRACKS, files), devices, named)
    except BadExperiment as error:
        wrong += error.problems
    if wrong:
        raise BadExperiment(wrong)
    return LabConfig(devices, tracks, named)


@cache
def defaults() -> LabConfig:
    """What holds in a lab that says nothing."""
    return parse({})


def find(start: Path) -> LabConfig:
    """What the lab decides in whose checkout `start` is: its nearest folder, upwards, that has
    `.github/regatta`; the defaults where none has. Raises BadExperiment."""
    if (root := checkout(start)) is None:
        return defaults()
    there = sorted((root / FOLDER).iterdir())
    files = [x for x in there if x.is_file() and is_read(x.name)]
    return parse({f"{FOLDER}/{x.name}": x.read_bytes() for x in files})


def checkout(start: Path) -> Path | None:
    """The nearest folder, from `start` upwards, that has `.github/regatta`."""
    here = start.resolve()
    return next((x for x in (here, *here.parents) if (x / FOLDER).is_dir()), None)


def is_read(name: str) -> bool:
    """Whether a file in the lab's folder is one that the lab reads, or was meant to be."""
    return name.endswith((".yml", ".yaml"))


def _unknown(files: Mapping[str, bytes]) -> Iterator[Problem]:
    for path in files:
        if path.startswith(f"{FOLDER}/") and path not in FILES:
            known = ", ".join(f"`{Path(one).name}`" for one in FILES)
            words = f"nothing reads a file of this name; the lab's are {known}{near(path, FILES)}"
            yield Problem(path, 1, "", words)


def _merged(path: str, files: Mapping[str, bytes]) -> Document:
    """The default of a file with what the lab's own says, whose lines complaints name."""
    default = _default(Path(path).name)
    try:
        text = files.get(path, b"").decode()
    except UnicodeDecodeError:
        raise BadExperiment([Problem(path, 1, "", "it is not UTF-8 text")]) from None
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return Document(default, {}, path)
    keys = list(default)[:2] or ["name@version"]
    own = problems.read(text, path, ", ".join(f"`{key}`" for key in keys))
    return replace(own, value=_patched(default, own.value))


@cache
def _default(name: str) -> dict[str, Any]:
    return dict(yaml_lines.read((DEFAULTS / name).read_text(encoding="utf-8")).value)


def _patched(value: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    merged = dict(value) if isinstance(value, dict) else {}
    for key, inner in change.items():
        if inner is None:
            merged.pop(key, None)
        else:
            merged[key] = _patched(merged.get(key), inner)
    return merged


def _devices(document: Document) -> dict[str, Kind]:
    complaints = Complaints(document)
    if "cpu" not in document.value:
        words = "it has to stay: what is done beside training on slices is done on it"
        complaints.say(("cpu",), words)
    read = complaints.read(_Devices, {"devices": document.value}, lambda place: place[1:])
    kinds = read.checked.devices if read.checked else {}
    complaints.say_all(_senseless_devices(kinds))
    complaints.end()
    return {name: Kind(**dict(kind)) for name, kind in kinds.items()}


def _senseless_devices(kinds: Mapping[str, _Kind]) -> Said:
    for name, kind in kinds.items():
        if kind.platform == "cpu" and kind.ray_cpus % 1:
            yield (name, "ray_cpus"), "cores are taken whole; write a whole number"
        for key in ("ray_tpu", "topologies"):
            if getattr(kind, key) and kind.platform != "tpu":
                yield (name, key), "only a kind with `platform: tpu` has it; take it out"
        if kind.ray_tpu and not kind.topologies:
            words = "its slices are missing; write the shape of each, as `topologies: {4: 2x2x1}`"
            yield (name, "topologies"), words
    if (cpu := kinds.get("cpu")) and (cpu.platform != "cpu" or not cpu.ray_cpus):
        words = "steps beside training need cores; write `platform: cpu` and `ray_cpus: 1` or more"
        yield ("cpu",), words


def _tracks(
    document: Document, devices: Mapping[str, Kind], named: Mapping[str, Corpus]
) -> dict[str, Track]:
    """The tracks of a lab with these devices (none: they cannot be read) and corpora."""
    complaints = Complaints(document)
    said = complaints.read(_Tracks, document.value).checked or _Tracks()
    complaints.say_all(_senseless_tracks(said, devices))
    complaints.end()
    data = {name: _identified(one, named) for name, one in said.data.items()}
    return {
        name: Track(**dict(track) | {"name": name, "data": data[track.data]})
        for name, track in said.tracks.items()
    }


def _identified(data: Scored, named: Mapping[str, Corpus]) -> Scored:
    """A track's data with the digest of its corpus, once that was fetched."""
    corpus = named.get(data.source)
    if data.validation_sha256 or corpus is None or corpus.fetched is None:
        return data
    found = {**corpus.fetched.model_dump(), **corpus.read()}
    return data.model_copy(update={"validation_sha256": corpora.digest(found, "validation")})


def _senseless_tracks(said: _Tracks, devices: Mapping[str, Kind]) -> Said:
    for name, track in said.tracks.items():
        if track.data not in said.data:
            words = f"there is no `{track.data}` below `data`; there is {listed(said.data)}"
            yield ("tracks", name, "data"), words + near(track.data, said.data)
        scored = said.data.get(track.data)
        if scored and not scored.validation_sha256 and "@" not in scored.source:
            words = "is missing; `regatta plan NAME --json` shows it under `data`"
            yield ("data", track.data, "validation_sha256"), words
        if track.kind == "budget" and (track.budget is None) == (track.seconds is None):
            words = "a track of kind budget needs either `budget`, in FLOPs, or `seconds`"
            yield ("tracks", name), words
        if track.seconds and not track.hardware:
            words = "`seconds` are compared on one kind of hardware; write `hardware`, too"
            yield ("tracks", name), words
        for key in NEEDS[track.kind]:
            if getattr(track, key) is None:
                yield ("tracks", name), f"a track of kind {track.kind} needs `{key}`"
        if track.hardware and devices and track.hardware.kind not in devices:
            words = f"the lab has no devices of kind `{track.hardware.kind}`; it has "
            yield ("tracks", name, "hardware", "kind"), words + listed(devices)


def _corpora(document: Document) -> dict[str, Corpus]:
    complaints = Complaints(document)
    read = complaints.read(_Corpora, {"corpora": document.value}, lambda place: place[1:])
    complaints.end()
    return dict(read.checked.corpora) if read.checked else {}
