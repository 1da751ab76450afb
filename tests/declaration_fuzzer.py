"""Mutates the shipped declarations and plans each result in a child with the bot's limits.

Every case follows from the seed and its number alone, so that one case can be planned again:

    python -m tests.declaration_fuzzer --cases 200000 --seed 1
    python -m tests.declaration_fuzzer --seed 1 --only 1234

A case is sound if it has a plan or a `BadExperiment` whose problems name the file. A traceback, the
end of the child, more than SECONDS or more than MEMORY is a finding.
"""

import argparse
import copy
import json
import os
import random
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from runner.lib import yaml_lines
from runner.lib.paths import LAB
from runner.lib.problems import BadExperiment
from runner.planning import limited_plan, limits, planner
from runner.schema import lab_config
from runner.schema.record import Plan
from runner.spec import declaration, json_schema, snapshots

SECONDS, MEMORY = 20.0, 256 << 20
SHIPPED = sorted(
    [
        *LAB.glob("experiments/*/experiment.yaml"),
        *LAB.glob("runner/spec/starters/*/experiment.yaml"),
    ]
)
NAMES = (
    *("a/b", "..", "../../x", "A B", "x" * 300, "1", "true", "null", "", " ", "-", "_", "__init__"),
    *("{why}", "{0}", "{", "%s", "`", "'", '"', "\n", "a\nb", "\u202e", "\u0000", "\ud7ff", "é"),
    *("e\u0301", "ﬁ", "𝕏", "😀", "no-dots.here", "seed=0", "a,b", "a=b", "name", "size", "init"),
    *("settings", "tokens", "models", "main", "baseline", "no-x-s", "lab:code", "CON", "\x7f"),
)
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 63, 64, 65, 100, 255, 256, 257, 1000, 4096, 4097, 10_000, 65_536, 10**6),
    *(2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**399),
    *(-(2**63), -(10**30), 0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 1e-300, 5e-324, 1e30, 1e300, 1.7e308),
    *(-1.0, -1e308, 1e-12, 0.999999, 1.000001),
)
PATTERNS = (
    *(
        "a{99999999999}",
        "(" * 2000 + ")" * 2000,
        "(?:" * 100 + "a" + ")*" * 100,
        "[",
        "(",
        "*",
        "\\",
    ),
    *(
        "(a+)+$",
        "(?P<a>x)(?P<a>y)",
        "(?<=a*)b",
        "\\8",
        "(?i",
        "x{5000}{5000}{5000}",
        "[z-a]",
        "(?#",
    ),
    *("{% generation %}{{ " + "9" * 5000 + " }}{% endgeneration %}", "{%" * 500, "{{ " + "(" * 500),
    "{% for a in [1] %}" * 30 + "{% generation %}x{% endgeneration %}" + "{% endfor %}" * 30,
    *("{% generation %}{{ [1]|random ~ lipsum() }}{% endgeneration %}", "{% generation %}"),
    *("\\N{x}", "(?u:\\w)", "(?(1)a|b)", "(?(99)a|b)", "[[:alpha:]]", "\\p{L}"),
)
# What stands in the text itself: no value of YAML's says it.
SNIPPETS = (
    *("*anchor", "&a [*a]", "!!python/object:os.system x", "!!binary aGk=", "<<: {a: 1}", "? [a]"),
    *("1e999", "-1e999", ".5", "0x10", "0o17", "1_000", ".inf", ".nan", "2026-01-01", "9" * 5000),
    *(
        "[" * 30,
        "{a: " * 25,
        '"\\ud800"',
        '"\\0"',
        '"\\U00110000"',
        "\t",
        "%YAML 1.1",
        "---",
        "...",
    ),
    *("'", '"', "|", ">", "- - - -", "\ufeff", "#", ": :", "{}", "[]", "~", "\u2028", "\x85"),
)


class Case(NamedTuple):
    """A declaration that nobody wrote."""

    folder: Path  # with the files that it names
    text: str
    value: Any = None  # of the text, if nothing depends on reading it, which takes longest


class Finding(NamedTuple):
    """A case that is not answered in words, or not within the limits."""

    case: int
    kind: str  # such as KeyError; seconds, memory or a signal
    where: str


@dataclass
class Report:
    """What a run of the fuzzer saw."""

    cases: int = 0
    plans: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)  # seconds of a processor, and the case
    largest: tuple[int, int] = (0, -1)  # bytes above the start of the case, and the case
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = Counter((found.kind, found.where) for found in self.findings)
        examples = {(found.kind, found.where): found.case for found in reversed(self.findings)}
        return "\n".join(
            [
                f"{self.cases:,} cases in {self.seconds:,.0f} s: {self.plans:,} plans, "
                f"{self.refused:,} refused in words, {len(self.findings):,} findings",
                f"slowest: {self.slowest[0]:.2f} s (case {self.slowest[1]}); "
                f"largest: {self.largest[0] / 2**20:.1f} MiB (case {self.largest[1]})",
                *(
                    f"{count:6,} {kind} at {where} (case {examples[kind, where]})"
                    for (kind, where), count in kinds.most_common()
                ),
            ]
        )


# ── Mutations ────────────────────────────────────────────────────────────────────────────────


@cache
def shipped() -> tuple[tuple[Path, str, Any], ...]:
    """(folder, text, value) of each shipped declaration."""
    found = []
    for file in SHIPPED:
        text = file.read_text(encoding="utf-8")
        found.append((file.parent, text, yaml_lines.read(text).value))
    return tuple(found)


@cache
def _words() -> tuple[str, ...]:
    """Every key of the shipped declarations."""
    values = (value for _, _, value in shipped())
    return tuple(sorted({str(path[-1]) for value in values for path in _paths(value)}))


@cache
def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_file()))


@cache
def _schema() -> Mapping[str, Any]:
    return json_schema.schema(lab_config.defaults())


@cache
def keys() -> Mapping[str, tuple[tuple[str, Any], ...]]:
    """{key: the keys that the schema knows below it, each with its schema}."""
    schema = _schema()
    definitions, found = schema["$defs"], dict[str, dict[str, Any]]()

    def resolved(part: Any) -> Iterator[Mapping[str, Any]]:
        if not isinstance(part, dict):
            return
        if "$ref" in part:
            yield from resolved(definitions[part["$ref"].rpartition("/")[2]])
        yield part
        for key in ("anyOf", "allOf", "oneOf"):
            for inner in part.get(key, ()):
                yield from resolved(inner)
        for key in ("items", "additionalProperties"):
            yield from resolved(part.get(key))

    def add(name: str, part: Any) -> None:
        for shape in resolved(part):
            found.setdefault(name, {}).update(shape.get("properties", {}))

    for part in (schema, *definitions.values()):
        for name, inner in part.get("properties", {}).items():
            add(name, inner)
        for branch in ("then", "else"):
            for name, inner in part.get(branch, {}).get("properties", {}).items():
                add(name, inner)
    found[""] = {}
    add("", schema)
    for branch in ("then", "else"):
        add("", schema.get(branch))
    found["config"] = {
        name: inner
        for part in definitions.values()
        for name, inner in part.get("properties", {}).items()
    }
    return {name: tuple(sorted(inner.items())) for name, inner in found.items() if inner}


class Mutator:
    """Changes one declaration at a few places."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def case(self) -> Case:
        sizes = [1 / len(text) for _, text, _ in shipped()]  # large ones take longer to read
        folder, text, value = self._chance.choices(shipped(), sizes)[0]
        if self._chance.random() < 0.08:
            return Case(folder, self._scribbled(text))
        value = copy.deepcopy(value)
        for _ in range(self._chance.choice((1, 1, 1, 1, 2, 2, 4))):
            self._change(value)
        kind = self._chance.random()
        if kind < 0.75 and _is_plain(value):
            return Case(folder, "", value)
        try:
            text = yaml.dump(value, Dumper=DUMPER, allow_unicode=True, sort_keys=False)
        except (yaml.YAMLError, UnicodeError):
            text = json.dumps(value)
        return Case(folder, self._scribbled(text) if kind > 0.95 else text)

    def _change(self, value: Any) -> None:
        paths = [*_paths(value)]
        path = self._chance.choice(paths)
        around = _at(value, path[:-1])
        self._chance.choice(
            (
                *(self._replace, self._replace, self._replace, self._drop, self._rename),
                *(self._insert, self._insert, self._insert, self._scale, self._graft, self._many),
                *(self._twice, self._swap, self._nest, self._name),
            )
        )(value, around, path)

    def _replace(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        around[path[-1]] = self._anything()

    def _drop(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        del around[path[-1]]

    def _rename(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        if isinstance(around, dict):
            inner = around.pop(path[-1])
            around[self._key(str(path[-1]))] = inner

    def _insert(self, value: Any, *_: Any) -> None:
        """A key that the schema knows there, with a value that fits or nearly does."""
        sections = [place for place in ((), *_paths(value)) if isinstance(_at(value, place), dict)]
        place = self._chance.choice(sections)
        name = next((str(part) for part in reversed(place) if str(part) in keys()), "")
        key, schema = self._chance.choice(keys()[name])
        _at(value, place)[key] = self._fitting(schema)

    def _scale(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        old = around[path[-1]]
        if isinstance(old, int | float) and not isinstance(old, bool):
            by = self._chance.choice((2, 3, 10, 1000, 10**6, 10**9, 10**15))
            around[path[-1]] = old * by if self._chance.random() < 0.7 else old / by
        else:
            around[path[-1]] = self._chance.choice(NUMBERS)

    def _graft(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        other = self._chance.choice(shipped())[2]
        same = [place for place in _paths(other) if place[-1] == path[-1]]
        place = self._chance.choice(same or [*_paths(other)])
        around[path[-1]] = copy.deepcopy(_at(other, place))

    def _many(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        count = self._chance.choice((2, 2, 2, 3, 17, 17, 100, 100, 300, 2_000))
        count *= 4 if self._chance.random() < 0.05 else 1
        old = around[path[-1]]
        if isinstance(old, dict) and old:
            name, inner = self._chance.choice([*old.items()])
            count = min(count, 40_000 // (len(str(inner)) + 10))
            old |= {f"{name}{n}"[:39]: copy.deepcopy(inner) for n in range(count)}
        elif isinstance(old, list) and old:
            inner = self._chance.choice(old)
            count = min(count, 40_000 // (len(str(inner)) + 4))
            numbers = isinstance(inner, int | float) and not isinstance(inner, bool)
            old += [inner + n if numbers else copy.deepcopy(inner) for n in range(count)]
        else:
            around[path[-1]] = [*range(count)]

    def _twice(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        if isinstance(around, list):
            around.append(copy.deepcopy(around[path[-1]]))
        else:
            around[f"{path[-1]} "] = copy.deepcopy(around[path[-1]])

    def _swap(self, value: Any, around: Any, path: tuple[Any, ...]) -> None:
        other = self._chance.choice([*_paths(value)])
        if path[: len(other)] != other and other[: len(path)] != path:
            there = _at(value, other[:-1])
            around[path[-1]], there[other[-1]] = there[other[-1]], around[path[-1]]

    def _nest(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        inner = around[path[-1]]
        for _ in range(self._chance.choice((1, 2, 5, 12, 16, 25, 100))):
            inner = [inner] if self._chance.random() < 0.5 else {self._key("x"): inner}
        around[path[-1]] = inner

    def _name(self, _: Any, around: Any, path: tuple[Any, ...]) -> None:
        around[path[-1]] = self._chance.choice(NAMES)

    def _key(self, old: str) -> str:
        kind = self._chance.randrange(4)
        if kind == 0 and old:
            at = self._chance.randrange(len(old))
            return old[:at] + old[at + 1 :]
        if kind == 1:
            section = self._chance.choice([*keys()])
            return self._chance.choice(keys()[section])[0]
        return f"{old}.{old}" if kind == 2 else self._chance.choice(NAMES)

    def _fitting(self, schema: Any, depth: int = 0) -> Any:
        chance = self._chance
        if not isinstance(schema, dict) or depth > 4 or chance.random() < 0.15:
            return self._anything()
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._fitting(_schema()["$defs"][name], depth + 1)
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self._fitting(chance.choice(schema[key]), depth + 1)
        if "const" in schema or schema.get("enum"):
            return schema["const"] if "const" in schema else chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                inner = schema.get("properties", {})
                some = chance.sample(sorted(inner), min(len(inner), chance.choice((0, 1, 2, 4))))
                wanted = [*schema.get("required", ()), *some]
                found = {key: self._fitting(inner.get(key), depth + 1) for key in wanted}
                if isinstance(more := schema.get("additionalProperties"), dict):
                    for _ in range(chance.choice((1, 2, 3))):
                        found[self._word()] = self._fitting(more, depth + 1)
                return found
            case "array":
                items = schema.get("items", schema.get("prefixItems", [{}])[0])
                return [self._fitting(items, depth + 1) for _ in range(chance.choice((0, 1, 2, 3)))]
            case "boolean":
                return chance.random() < 0.5
            case "integer" | "number" as kind:
                low = schema.get("minimum", schema.get("exclusiveMinimum", -1000))
                high = schema.get("maximum", schema.get("exclusiveMaximum", 10**6))
                near = chance.choice((low, high, low + 1, high - 1, low - 1, high + 1, 2, 64))
                if kind == "integer":
                    return int(chance.choice((near, chance.randint(1, 100))))
                return float(chance.choice((near, chance.random(), low + (high - low) / 3)))
            case "string":
                return self._word()
        return self._anything()

    def _word(self) -> str:
        folder = self._chance.choice(shipped())[0]
        kind = self._chance.randrange(5)
        if kind == 0:
            return self._chance.choice(NAMES)
        if kind == 1:
            return self._chance.choice(PATTERNS)
        if kind == 2:
            return self._chance.choice(
                [*_files(folder), "stdlib", "nobody.txt", "x.parquet", "own:Model"]
            )
        return self._chance.choice(_words())

    def _anything(self) -> Any:
        chance = self._chance
        kind = chance.randrange(12)
        if kind < 4:
            return chance.choice(NUMBERS)
        if kind == 4:
            return chance.choice((None, True, False, "", [], {}, [[]], [{}], {"": None}, "true"))
        if kind == 5:
            return chance.choice(PATTERNS)
        if kind == 6:
            return chance.choice("xé\u202e{`\n ") * chance.choice((1, 200, 1000, 30_000))
        if kind == 7:
            return [self._anything() for _ in range(chance.choice((1, 2, 3)))]
        if kind == 8:
            return {self._key("x"): self._anything() for _ in range(chance.choice((1, 2, 3)))}
        if kind == 9:
            other = chance.choice(shipped())[2]
            return copy.deepcopy(_at(other, chance.choice([*_paths(other)])))
        return self._word()

    def _scribbled(self, text: str) -> str:
        """The text with something written into it, a line twice, or a part missing."""
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            at = self._chance.randrange(len(text) + 1)
            match self._chance.randrange(5):
                case 0:
                    text = text[:at] + self._chance.choice(SNIPPETS) + text[at:]
                case 1:
                    text = text[:at] + text[at + self._chance.choice((1, 5, 50)) :]
                case 2:
                    lines = text.split("\n")
                    line = self._chance.randrange(len(lines))
                    lines.insert(self._chance.randrange(len(lines)), lines[line])
                    text = "\n".join(lines)
                case 3:
                    places = [*re.finditer(r": ?([^\s{\[][^\n,}\]]*)", text)]
                    if places:
                        place = self._chance.choice(places)
                        text = (
                            f"{text[: place.start(1)]}{self._chance.choice(SNIPPETS)}"
                            f"{text[place.end(1) :]}"
                        )
                case _:
                    text = text[:at]
        return text


def _is_plain(value: Any) -> bool:
    """Whether YAML can say it, within the limits of `yaml_lines`."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    deep = max(map(len, _paths(value)), default=0) >= yaml_lines.MOST_DEPTH
    return len(text) < 50_000 and not deep and text.isprintable()


DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of everything inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inner if isinstance(value, dict | list) else ():
        yield (*above, key)
        if isinstance(part, dict | list):
            yield from _paths(part, (*above, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def case(seed: int, number: int) -> Case:
    """The case with this number."""
    while True:
        chance = random.Random(f"{seed}:{number}")
        try:
            return Mutator(chance).case()
        except (IndexError, KeyError, TypeError, ValueError):  # nothing is left to change
            number += 10**9


# ── Judging ──────────────────────────────────────────────────────────────────────────────────


def plan(case: Case) -> Plan | None:
    """The plan of a case, looked at as the bot does; None if it is refused in words."""
    file = f"experiments/{case.folder.name}/experiment.yaml"
    lab = lab_config.find(LAB / "experiments" / "small-run")
    try:
        document = declaration.read(case.text or "title: A value", file)
        if case.value is not None:
            document = replace(document, value=case.value, lines={})
        graph = declaration.drafted(document, lab)
        found = planner.make_plan(graph, case.folder, called=f"experiments/{case.folder.name}")
    except BadExperiment as error:
        if not all(map(str, error.problems or [""])):
            raise AssertionError("it is refused without a word") from error
        return None
    again = Plan.model_validate_json(found.model_dump_json())
    assert again.fingerprint == found.fingerprint
    limits.limit_seconds(again, 24)
    limits.at_once(again)
    snapshots.told(again.steps)
    return found


def _status(key: str) -> int:
    """Bytes of VmRSS or VmHWM of this process."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123  for each case
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) << 10
    return 0


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("5")


def _judge(seed: int, numbers: range, say: Callable[[list[Any]], None]) -> None:
    """In the child: plan each case, and say what became of it."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        say(["begins", number])
        this, kind, where = case(seed, number), "", ""
        _reset_peak()
        before, began = _status("VmRSS"), time.process_time()
        try:
            kind = "refused" if plan(this) is None else "plan"
        except BaseException as error:  # whatever it is, it is a finding
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "/site-packages/" not in frame.filename]
            last = (ours or frames)[-1]
            kind = type(error).__name__
            where = f"{last.filename.removeprefix(str(LAB) + '/')}:{last.lineno}"
        took, grown = time.process_time() - began, _status("VmHWM") - before
        say(["ends", number, kind, where, took, grown])


def _processor(process: int) -> float:
    """Seconds of a processor that a process has used."""
    words = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _fork(seed: int, numbers: range) -> tuple[int, int]:
    """(the child, what it says)."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        _judge(
            seed, numbers, lambda row: os.write(writing, json.dumps(row).encode() + b"\n") and None
        )
        code = 0
    finally:
        os._exit(code)


def fuzz(seed: int, numbers: range, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Plan the cases with these numbers."""
    report, begun = Report(), time.monotonic()
    shipped(), keys()
    limited_plan.prepare()  # imports and caches are no case's memory
    left = numbers
    while left:
        child, reading = _fork(seed, left)
        current, rest, ended, begun_at = left[0], b"", False, 0.0
        while not ended:
            if not select.select([reading], [], [], SECONDS)[0]:
                if _processor(child) < begun_at + SECONDS:
                    continue  # the machine does something else
                os.kill(child, signal.SIGKILL)
                report.findings.append(Finding(current, "seconds", "the child did not end"))
                break
            block = os.read(reading, 1 << 16)
            ended, rest = not block, rest + block
            *lines, rest = rest.split(b"\n")
            for row in map(json.loads, lines):
                current, begun_at = row[1], _processor(child)
                if row[0] == "ends":
                    _count(report, row)
                    left = numbers[numbers.index(current) + 1 :]
                    report.seconds = time.monotonic() - begun
                    progress(report)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if ended and os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            report.findings.append(Finding(current, name, "the child ended"))
        if left and current >= left[0]:
            report.cases += 1
            left = numbers[numbers.index(current) + 1 :]
    report.seconds = time.monotonic() - begun
    return report


def _count(report: Report, row: list[Any]) -> None:
    _, number, kind, where, took, grown = row
    report.cases += 1
    report.plans += kind == "plan"
    report.refused += kind == "refused"
    if kind not in ("plan", "refused"):
        report.findings.append(Finding(number, kind, where))
    elif took > SECONDS:
        report.findings.append(Finding(number, "seconds", f"{took:.1f} s"))
    elif grown > MEMORY:
        report.findings.append(Finding(number, "memory", f"{grown >> 20} MiB"))
    report.slowest = max(report.slowest, (took, number))
    report.largest = max(report.largest, (grown, number))


def main() -> None:
    """Fuzz, and print the report; the exit code says whether there are findings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.only is not None:
        this = case(options.seed, options.only)
        print(this.text[:4000] or json.dumps(this.value)[:4000])
        plan(this)
        return

    def progress(report: Report) -> None:
        if report.cases % 2000 == 0:
            print(report, flush=True)

    report = fuzz(options.seed, range(options.first, options.first + options.cases), progress)
    print(report)
    sys.exit(bool(report.findings))


if __name__ == "__main__":
    main()
