"""Writes the generated part of the documentation: `python docs/generate.py`, as `make docs` does.

The references of experiment.yaml, of records and of commands come from the schemas and the command
line, the pictures of the rooms from the import contract. The JSON Schemas are of the same models. A
test compares what is committed with what this writes.
"""

import inspect
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from bot.cli.main import app
from engine.config.phases import Phase
from engine.config.schema import (
    DataConfig,
    EvalConfig,
    ExpertsConfig,
    ModelConfig,
    TrainConfig,
)
from engine.config.stages import StagedCompute, StagedMesh
from engine.data import filter_rules
from runner.schema import record
from runner.spec import json_schema, model_steps, step_types, training_steps
from runner.spec.benchmarks import Benchmark, LmEvalTask, Samples
from runner.spec.experiment import Asked, Declaration, ShortForm
from runner.spec.ladder import Ladder, Rung
from runner.spec.steps import Step
from runner.spec.studies import Ablate, Isoflop
from runner.spec.tuning import Search

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/reference"
NOTE = "<!-- Written by docs/generate.py; run `make docs` after a change. -->\n\n"

RECORDS = {
    name: one
    for name, one in sorted(vars(record).items())
    if isinstance(one, type) and issubclass(one, BaseModel)
}

# The parts of experiment.yaml, by their headings.
PARTS = {
    "data": DataConfig,
    "model": ModelConfig,
    "moe": ExpertsConfig,
    "train": TrainConfig,
    "phases": Phase,
    "own": training_steps.Own,
    "compute": StagedCompute,
    "mesh": StagedMesh,
    "eval": EvalConfig,
    "samples": model_steps.Generate,
    "benchmarks": Benchmark,
    "lm_eval": LmEvalTask,
    "solutions": Samples,
    "message": model_steps.Message,
    "resources": Asked,
    "speedrun": record.Speedrun,
    "author": record.Author,
    "ladder": Ladder,
    "rung": Rung,
    "ablate": Ablate,
    "isoflop": Isoflop,
    "tune": Search,
}
LINKS = {
    **{
        one: f"records.md#{name.lower()}"
        for name, one in vars(record).items()
        if isinstance(one, type)
    },
    **{model: f"experiment.md#{name}" for name, model in PARTS.items()},
}

# ── Fields ───────────────────────────────────────────────────────────────────────────────────


def kind(of: Any) -> str:
    """A type in words that a table can hold."""
    origin = get_origin(of)
    if origin is Literal:
        return " or ".join(f"`{value}`" if value != "" else '`""`' for value in get_args(of))
    if origin in (Union, UnionType):
        return " or ".join(kind(one) for one in get_args(of) if one is not type(None))
    if origin in (tuple, list, set, frozenset):
        inner = [kind(one) for one in get_args(of) if one is not Ellipsis]
        return "list of " + ", ".join(dict.fromkeys(inner))
    if origin is Annotated:
        return kind(get_args(of)[0])
    if origin in (dict, Mapping):
        if Any in get_args(of):
            return "map"
        return f"map from {' to '.join(kind(one) for one in get_args(of))}"
    plain = {str: "text", int: "integer", float: "number", bool: "true or false", dict: "map"}
    if of in plain:
        return plain[of]
    if is_model(of):
        return f"[{of.__name__}]({LINKS[of]})" if of in LINKS else of.__name__
    return getattr(of, "__name__", str(of))


def is_model(of: Any) -> bool:
    return isinstance(of, type) and issubclass(of, BaseModel)


def default(field: FieldInfo) -> str:
    """What a key is when it is left out."""
    if field.is_required():
        return "required"
    if field.default_factory is not None or is_model(type(field.default)) or field.default is None:
        return ""
    value = field.default
    return (
        ""
        if value in ((), {}, "")
        else f"`{str(value).lower() if value is True or value is False else value}`"
    )


def cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def table(model: type[BaseModel], *, defaults: bool = True) -> Iterator[str]:
    yield "| key | type | default | meaning |" if defaults else "| field | type | meaning |"
    yield "| --- | --- | --- | --- |" if defaults else "| --- | --- | --- |"
    for name, field in model.model_fields.items():
        cells = [f"`{field.alias or name}`", kind(field.annotation)]
        cells += [default(field)] if defaults else []
        yield "| " + " | ".join(cell(one) for one in [*cells, field.description or ""]) + " |"
    yield ""


# ── Pages ────────────────────────────────────────────────────────────────────────────────────

# Of each key its type and its default, in words. What it means, its field says.
TOP = {
    "title": ("text", "required"),
    "preregistration": ("integer", ""),
    "data": ("[data](#data)", "required"),
    "model": ("[model](#model)", "required"),
    "train": ("[train](#train)", "required"),
    "own": ("[own](#own)", ""),
    "options": ("map", ""),
    "compute": ("[compute](#compute)", ""),
    "eval": ("[eval](#eval)", ""),
    "samples": ("[samples](#samples)", ""),
    "benchmarks": ("[benchmarks](#benchmarks)", ""),
    "resources": ("[resources](#resources)", "required"),
    "speedrun": ("[speedrun](#speedrun)", ""),
    "seeds": ("list of integer", "`[0]`"),
    "arms": ("map from name to changes", "one arm, `main`"),
    "ladder": ("[ladder](#ladder)", ""),
    "ablate": ("[ablate](#ablate)", ""),
    "isoflop": ("[isoflop](#isoflop)", ""),
    "tune": ("[tune](#tune)", ""),
    "steps": ("[steps](#steps)", ""),
}


def top() -> Iterator[str]:
    yield "| key | type | default | meaning |\n| --- | --- | --- | --- |"
    fields = Declaration.model_fields | ShortForm.model_fields
    assert TOP.keys() == fields.keys()
    for key, cells in TOP.items():
        yield f"| `{key}` | " + " | ".join([*cells, cell(fields[key].description or "")]) + " |"
    yield ""


def experiment() -> Iterator[str]:
    yield "# experiment.yaml\n"
    yield "Editors complete and check a file whose first line names the JSON Schema:\n"
    yield f"```yaml\n# yaml-language-server: $schema=../{json_schema.NAME}\n```\n"
    yield f"`regatta new` writes this line. If `experiments/{json_schema.NAME}` does not exist, it"
    yield "writes the schema, too. `regatta schema` prints the schema.\n"
    yield from top()
    for name, model in PARTS.items():
        yield f"## {name}\n"
        yield from table(model)
    yield "## steps\n"
    yield from table(Step)
    for do, one in step_types.BUILT_IN.items():
        yield f"### {do}\n"
        yield f"{cell((one.config.__doc__ or '').split('.')[0])}. It makes {one.makes}.\n"
        takes = {
            **one.inputs,
            **{f"{name} (optional)": what for name, what in one.optional.items()},
        }
        if one.others:
            takes["names of your choice"] = one.others
        for name, what in takes.items():
            yield f"- input {name}: {' or '.join(what)}"
        yield ""
        yield from table(one.config)
    yield "## filter rules\n"
    yield "What `rules` of a `filter` step may name, and the documents that each leaves out.\n"
    yield "| rule | leaves out a document if |\n| --- | --- |"
    for rule, of in filter_rules.RULES.items():
        yield f"| `{rule}` | {cell(of.words)} |"
    yield ""


def records() -> Iterator[str]:
    yield "# Records\n"
    yield "Every fact that the lab writes down. A record is a JSON file that is created once."
    yield "The [JSON Schema](records.schema.json) has the same fields for programs.\n"
    yield "```text\n" + inspect.getdoc(record).partition("\n\n    ")[2].join(["    ", "\n```\n"])
    for name, model in RECORDS.items():
        yield f"## {name}\n"
        if model.__doc__ and model.__doc__ != BaseModel.__doc__:
            yield cell(model.__doc__) + "\n"
        yield from table(model, defaults=False)


def records_schema() -> str:
    """The same as JSON Schema."""
    whole = {"$schema": json_schema.DRAFT, "$defs": json_schema.of_models(RECORDS.values())}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "Exit codes: 0 done, 1 failed, 2 bad input.\n"
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    yield from described(group, ["regatta"])


def described(group: TyperGroup, path: list[str]) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        at = [*path, name]
        if isinstance(command, TyperGroup):
            yield from described(command, at)
            continue
        yield f"## {' '.join(at)}\n"
        yield cell(command.help or "") + "\n"
        arguments = [
            (p.metavar or str(p.name)).strip("{}").upper()
            for p in command.params
            if p.param_type_name == "argument"
        ]
        yield f"    {' '.join([*at, *arguments, '[OPTIONS]'])}\n"
        options = [p for p in command.params if p.param_type_name == "option"]
        if options:
            yield "| option | meaning |\n| --- | --- |"
            for one in options:
                named = [one.envvar] if isinstance(one.envvar, str) else one.envvar or []
                variable = f" (`{'`, `'.join(named)}`)" if named else ""
                yield f"| `{'`, `'.join(one.opts)}` | {cell(one.help or '')}{variable} |"
            yield ""


# ── Pictures of the rooms ────────────────────────────────────────────────────────────────────


def rooms(package: str) -> str:
    """The rooms of a package as the import contract has them, what may use what from top to
    bottom, as SVG. A room's sentence is the first of its `__init__.py`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [
        one
        for one in settings["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and len(one["layers"]) > 3 and "containers" not in one
    ]
    layers = [
        [room.strip() for room in line.split("|") if room.strip().startswith(f"{package}.")]
        for line in contract["layers"]
    ]
    layers = [line for line in layers if line]
    height, width = 58, 820
    boxes = []
    for row, line in enumerate(layers):
        each = (width - 10 * (len(line) - 1)) / len(line)
        for column, room in enumerate(line):
            x, y = column * (each + 10), row * (height + 10)
            boxes.append(
                f'<rect x="{x + 1:.0f}" y="{y + 1}" width="{each - 2:.0f}" height="{height}" '
                f'rx="6" fill="#fff" stroke="#557"/>'
                f'<text x="{x + 14:.0f}" y="{y + 24}" font-weight="bold">'
                f"{escape(room.removeprefix(f'{package}.'))}</text>"
            )
            for n, words in enumerate(lines_of(sentence(room), int(each / 7))[:2]):
                boxes.append(f'<text x="{x + 14:.0f}" y="{y + 40 + 14 * n}">{escape(words)}</text>')
    tall = len(layers) * (height + 10)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" '
        f'font-family="sans-serif" font-size="12" fill="#223" role="img">'
        f"<title>The rooms of {package}</title>{''.join(boxes)}</svg>\n"
    )


def sentence(room: str) -> str:
    folder = ROOT / room.replace(".", "/")
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    source = path.read_text()
    words = inspect.cleandoc(source.split('"""')[1]) if '"""' in source else ""
    return " ".join(words.split("\n\n")[0].split()).split(". ")[0]


def lines_of(words: str, width: int) -> list[str]:
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def files() -> dict[Path, str]:
    """All that is generated, by its path."""
    pages = {"experiment": experiment, "records": records, "commands": commands}
    return {
        **{
            OUT / f"{name}.md": NOTE + "\n".join(page()).rstrip() + "\n"
            for name, page in pages.items()
        },
        **{OUT / f"{package}.svg": rooms(package) for package in ("engine", "runner", "bot")},
        OUT / "records.schema.json": records_schema(),
        ROOT / "experiments" / json_schema.NAME: json_schema.text(),
    }


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
    sys.exit()
