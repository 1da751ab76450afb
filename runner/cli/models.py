"""`export`, `import` and `chat`: models leave the lab for other tools, come in, and answer. What
needs JAX runs in a child (`runner.worker.models_child`)."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from runner.cli import options
from runner.cli.ending import FAILED, remark, stop, stopping, tell
from runner.cli.options import AsJson, TheJobs, TheStore
from runner.isolation import bubblewrap
from runner.lib.canonical_json import to_json
from runner.lib.paths import LAB
from runner.lib.problems import near
from runner.lib.untrusted_files import printable
from runner.planning import planned_steps, planner
from runner.planning.own_code_folder import laid
from runner.publish import hub
from runner.schema import record
from runner.schema.record import Execution, PlannedStep
from runner.spec.model_steps import HUB_NAME
from runner.spec.step_types import BUILT_IN, MODELS, SCORES, STORES, TASK_SCORES
from runner.store import artifacts, digests
from runner.store.store import Store, StoreError

CHILD = "runner.worker.models_child"
Answers = Generator[dict[str, Any], Mapping[str, Any], None]
MAX_NAMED = 8  # models listed in an error

TheModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A run: an execution (id or `latest`), with .ARM.sSEED if it has several.",
        autocompletion=options.begun,
    ),
]


class Found(NamedTuple):
    """A model of an execution."""

    execution: Execution
    step: str


def model(store: Store, named: str) -> Found:
    """The run `EXECUTION.ARM.sSEED` of the store, or the model that `EXECUTION.STEP` makes, or the
    only model of `EXECUTION`. Ends the command if there is none."""
    id, _, run = named.partition(".")
    execution = options.in_steps(store, id)
    steps = execution.plan.steps
    runs = {record.run_name(*of): step for of, step in execution.plan.trained().items()}
    makers = [x for x, step in steps.items() if step.do in BUILT_IN and _makes(step) in MODELS]
    known = {**{name: name for name in makers}, **runs}
    if run in known:
        return Found(execution, known[run])
    if not run and len(makers) == 1:
        return Found(execution, makers[0])
    shown = [*runs, *(name for name in makers if name not in runs.values())]
    listed = ", ".join(f"{execution.id}.{name}" for name in shown[:MAX_NAMED]) or "none"
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    what = f"no model {run}{near(run, known)}" if run else f"{len(makers)} models"
    return stop(f"{execution.id} has {what}; name one of {listed}{more}.")


def _makes(step: PlannedStep) -> str:
    return BUILT_IN[step.do].makes


def _output(store: Store, found: Found, step: str) -> Path:
    """The output folder of a step, checked. Ends the command if there is none."""
    planned = found.execution.plan.steps[step]
    with stopping(artifacts.BadOutput, StoreError):
        made = artifacts.find(store, planned.store, planned.fingerprint)
    if made is None:
        stop(f"{found.execution.id} has no output of {step} in {store.root}; run it again.")
    return Path(made.folder).resolve()


def _tokens(found: Found) -> str | None:
    """The step with the token store that a model was trained on; None for an imported model."""
    steps, waiting = found.execution.plan.steps, [found.step]
    for name in waiting:  # grows during the loop
        if (step := steps[name]).do in BUILT_IN and _makes(step) in STORES:
            return name
        waiting += [other for other in step.needs if other not in waiting]
    return None


# ── export ───────────────────────────────────────────────────────────────────────────────────


def export_model(
    model_: TheModel,
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="bfloat16 rounds, and is half as large.")
    ] = "float32",
    licence: Annotated[
        str | None, typer.Option(help="Its licence by the Hub's name, such as apache-2.0.")
    ] = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as a folder that Hugging Face's `transformers` loads.

    With tokenizer, chat template and a model card that says what it was trained on, its scores and
    how to run it again."""
    opened = options.opened(store, jobs)
    found = model(opened, model_)
    execution, tokens = found.execution, _tokens(found)
    plan = execution.plan
    about = planned_steps.about(
        plan.title, plan.experiment, {"models": [found.step]}, plan.steps
    ) | {
        "execution": execution.id,
        "commit": execution.source.commit if execution.source else "",
        "preregistration": plan.preregistration,
    }
    scored = [
        str(_output(opened, found, name))
        for name, step in plan.steps.items()
        if step.do in BUILT_IN
        and _makes(step) in (SCORES, TASK_SCORES)
        and found.step in step.inputs.get("models", {})
        and artifacts.find(opened, step.store, step.fingerprint, check=False)
    ]
    asked = {
        "what": "export",
        "model": str(_output(opened, found, found.step)),
        "stores": tokens and str(_output(opened, found, tokens)),
        "label": found.step.partition("/")[2],
        "scores": scored,
        "target": str(folder.resolve()),
        "config": {"dtype": dtype, "licence": licence, "about": about},
    }
    with _child(asked) as answers:
        files = next(answers)["files"]
    tell(f"{folder}: {', '.join(files)}", as_json, folder=folder, files=files)
    remark(f"next: regatta chat {folder}", "dim")


# ── import ───────────────────────────────────────────────────────────────────────────────────


def import_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder that `transformers` wrote, or the Hub's ORG/NAME[@REVISION].",
        ),
    ],
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Copy a public model into the store, from a folder or from the Hugging Face Hub.

    Prints the `import` step with which an experiment takes it. Jobs have no network, so this is
    where a model comes in."""
    here, (name, _, revision) = Path(source), source.partition("@")
    if not here.is_dir() and not re.fullmatch(HUB_NAME, name):
        stop(f"{source} is neither a folder nor a name at the Hub; write ORG/NAME or ORG/NAME@REV.")
    with tempfile.TemporaryDirectory(prefix="regatta-import-") as place:
        folder = Path(place).resolve()
        if here.is_dir():
            called = here.resolve().name
            with stopping(OSError, hub.HubError, words=f"{source} cannot be read: {{}}."):
                hub.copy(here, folder)
        else:
            with stopping(hub.HubError, code=FAILED, words="{}."):
                fetched = hub.fetch(name, revision or None, folder)
            called = f"{name}@{fetched.commit[:12] or revision or 'main'}"
        with _child({"what": "import", "folder": str(folder)}) as answers:
            read = next(answers)
        with stopping(digests.BadOutput, StoreError):
            sha256 = digests.sha256(digests.digests(folder))
            options.made(store, jobs).upload_folder(planner.model_folder(sha256), folder)
    without = "" if read["tokenizer"] else "; it has no tokenizer"
    remark(
        f"{called}: {read['parameters']:,} parameters, {read['layers']} layers, "
        f"{read['context']:,} positions{without}. Write it as a step:"
    )
    config = {"model": called, "sha256": sha256}
    step = f"import: {{do: import, config: {json.dumps(config, ensure_ascii=False)}}}"
    tell(step, as_json, do="import", config=config, **read)


# ── chat ─────────────────────────────────────────────────────────────────────────────────────


def chat(
    model_: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A run, as `export` names it, or the folder of an exported model.",
            autocompletion=options.begun,
        ),
    ],
    prompt: Annotated[str | None, typer.Option(help="Answer this one text, and end.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0, max=100, help="0: always the most likely token.")
    ] = 0.7,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    tokens: Annotated[int, typer.Option(min=1, help="The most that an answer has.")] = 128,
    store: TheStore = "store",
    jobs: TheJobs = None,
) -> None:
    """Talk to a model. Ctrl-D ends.

    A model with a chat template answers and remembers the conversation. Any other continues each
    line that you write."""
    asked: dict[str, Any] = {
        "what": "chat",
        "temperature": temperature,
        "seed": seed,
        "tokens": tokens,
    }
    with ExitStack() as stack:
        if Path(model_).is_dir():
            folder = str(Path(model_).resolve())
            asked |= {"exported": True, "model": folder, "stores": None, "own": None}
        else:
            asked |= stack.enter_context(_of_run(options.opened(store, jobs), model_))
        answers = stack.enter_context(_child(asked))
        ready = next(answers)
        if prompt is None:
            how = "it answers by its chat template"
            if not ready["chats"]:
                how = "it has no chat template, so it continues each line that you write"
            remark(f"{how}; context {ready['context']:,} tokens; Ctrl-D ends", "dim")
        for number, text in enumerate(_lines(prompt)):
            answer = answers.send({"number": number, "text": text})
            if "error" in answer:
                if prompt is not None:
                    stop(f"{answer['error']}.")
                remark(f"{answer['error']}.", "red")
            else:
                shown = (printable(line) for line in answer["text"].split("\n"))
                print("\n".join(shown), flush=True)


def _lines(prompt: str | None) -> Iterator[str]:
    """What the user writes, line by line; only the `prompt` if there is one."""
    if prompt is not None:
        yield prompt
        return
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
        if line:
            yield line


@contextmanager
def _of_run(store: Store, named: str) -> Iterator[dict[str, Any]]:
    found = model(store, named)
    plan, step = found.execution.plan, found.execution.plan.steps[found.step]
    tokens, own = _tokens(found), step.config.get("own", {}).get("model")
    asked = {
        "exported": False,
        "model": str(_output(store, found, found.step)),
        "stores": tokens and str(_output(store, found, tokens)),
        "own": None,
    }
    if not own:
        yield asked
        return
    if words := bubblewrap.probe():
        stop(f"{found.step} is an own model, which is asked only in isolation: {words}")
    code = store.fetch(planner.code_folder(plan))
    with tempfile.TemporaryDirectory() as place, laid(step.code, code, Path(place)) as here:
        kind = plan.kinds["cpu"]
        config = {"model": own, "config": step.config["model"], "code": str(here)}
        yield asked | {"own": config | {"devices": asdict(kind)}}


# ── The child ────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _child(asked: Mapping[str, Any]) -> Iterator[Answers]:
    """The answers of a child, as a generator to which questions are sent. Its first answer must not
    be an error; ends the command if it is, or if the child dies."""
    with subprocess.Popen(
        [sys.executable, "-m", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=LAB,
        text=True,
    ) as child:
        try:
            yield _answers(child, asked)
        finally:
            child.kill()


def _answers(child: "subprocess.Popen[str]", asked: Mapping[str, Any]) -> Answers:
    assert child.stdin
    assert child.stdout
    question, first = asked, True
    while True:
        child.stdin.write(to_json(question).decode())  # one line
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            stop(f"the process that computes it ended with {child.wait()}; see above.", FAILED)
        answer = json.loads(line)
        if first and "error" in answer:
            stop(f"{answer['error'].rstrip('.')}.", FAILED)
        first, question = False, (yield answer)
