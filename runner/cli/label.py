"""`regatta label`: asks a language model for the labels that an execution's plan asks for. The
operator calls it, where the endpoint and its key are; jobs have neither."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from engine.data.lab_texts import BadText
from runner.cli import options
from runner.cli.ending import FAILED, print_json, remark, stop, stopping
from runner.cli.options import AsJson, TheExecution, TheJobs, TheStore
from runner.isolation import limited
from runner.lib import addresses, redact
from runner.lib.untrusted_files import printable
from runner.publish.asking import CannotAsk, Endpoint, ask
from runner.schema import replies
from runner.schema.record import Execution
from runner.store import artifacts
from runner.store.store import Store, StoreError

REQUESTS = "runner.worker.selection.label:requests"  # by name: jobs have it, too
LIMITS = limited.Limits(seconds=86_400.0, memory=64 << 30, answer=4 << 30)
KEY = "REGATTA_LABEL_KEY"

Price = Annotated[
    float,
    typer.Option(
        min=0,
        envvar="REGATTA_LABEL_INPUT_PRICE",
        help="Dollars per million tokens of prompts; 0 for a model of your own.",
    ),
]
ReplyPrice = Annotated[
    float,
    typer.Option(
        min=0,
        envvar="REGATTA_LABEL_OUTPUT_PRICE",
        help="Dollars per million tokens of replies; 0 for a model of your own.",
    ),
]


def command(
    execution: TheExecution,
    endpoint: Annotated[
        str,
        typer.Option(
            envvar="REGATTA_LABEL_ENDPOINT",
            help="An address that speaks OpenAI's chat completions, such as "
            "https://api.example.com/v1.",
        ),
    ],
    input_price: Price,
    output_price: ReplyPrice,
    key: Annotated[
        str, typer.Option(envvar=KEY, hidden=True, help="The endpoint's key; set the variable.")
    ] = "",
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Requests at a time.")] = 4,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Ask a language model for the labels that an execution's plan asks for, within its budget.

    Replies are recorded. None is asked for twice, also if this command is stopped and called again.
    """
    where = urlsplit(endpoint)
    if where.scheme not in ("http", "https") or not where.hostname:
        stop(f"--endpoint {endpoint}: it is not an address; write one such as https://…/v1.")
    if key and where.scheme == "http" and not addresses.is_here(endpoint):
        stop(f"--endpoint {endpoint}: a key is sent over https alone; write https://….")
    redact.hold(key)
    opened = options.opened(store, jobs)
    found = options.in_steps(opened, execution)
    steps = {name: of for name, of in found.plan.steps.items() if of.config.get("ask")}
    steps = {name: of for name, of in steps.items() if of.do == "label"}
    if not steps:
        stop(f"{found.id} has no `label` step that asks a language model.")
    counts: dict[str, dict[str, int]] = {}
    at = Endpoint(endpoint, key, input_price, output_price)
    for name, step in steps.items():
        requests = _requests(opened, found, name)
        with (
            stopping(CannotAsk, StoreError, code=FAILED, words=f"{name}: {{}}."),
            Console(stderr=True).status(f"{name}: asking {step.config['ask']['model']}"),
        ):
            of = ask(opened, at, step.fingerprint, step.config["ask"], requests, at_once)
        kind = step.config["ask"]["replies"]
        read = [one.reply is not None and replies.label_in(one.reply, kind) != -1
                for one in of.values()]  # fmt: skip
        counts[name] = {"documents": len(of), "labels": sum(read)}
        if not as_json:
            print(f"{name}: {len(of):,} documents, {sum(read):,} of them with a label")
    if as_json:
        print_json({"execution": found.id, "steps": counts})
    remark("next: run the experiment again; on GitHub, `/retry`", "dim")


def _requests(store: Store, execution: Execution, name: str) -> list[dict[str, Any]]:
    """What is sent for a step. Ends the command if its text is not there."""
    step, steps = execution.plan.steps[name], execution.plan.steps
    ((text, fingerprint),) = step.inputs["text"].items()
    with stopping(artifacts.BadOutput, StoreError):
        made = artifacts.find(store, steps[text].store, fingerprint)
    if made is None:
        stop(f"{name} labels the output of `{text}`, which is not in the store yet; run it first.")
    arguments = REQUESTS, Path(made.folder).resolve(), step.config
    try:
        lines: list[dict[str, Any]] = limited.call(*arguments, limits=LIMITS, expected=BadText)
    except BadText as error:
        stop(f"{name}: {error}", FAILED)
    except limited.Refused as error:
        stop(f"{name}: its text could not be read: {printable(str(error))}", FAILED)
    return lines
