"""The nodes of a graph as steps of a plan: with digests of their code and texts, and
fingerprints."""

import hashlib
import importlib.util
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from engine.config.stages import is_staged
from engine.data.chat_template import BadTemplate
from engine.data.chat_templates import TEMPLATES
from engine.data.conversations import Conversation, conversations
from engine.data.lab_texts import SHIPPED, BadText, Text, read_file, read_text
from runner.isolation import template_child
from runner.lib import lab_code
from runner.lib.paths import LAB
from runner.lib.problems import near
from runner.planning import (
    code_digest,
    lockfile,
    parquet_child,
    prompts,
    task_sources,
)
from runner.schema import step_graph
from runner.schema.record import PlannedStep
from runner.spec import declaration, lm_eval_yaml, task_items
from runner.spec.benchmarks import MADE, is_file, lm_eval_tasks
from runner.spec.corpus_steps import resolved
from runner.spec.graph import Graph, Node
from runner.spec.model_steps import drawn_too_many
from runner.spec.step_types import INIT, SOURCED, TASKED, TRAINS, calls_of, logical, parts_of

SAVING = {"checkpoint_every", "checkpoint_seconds", "keep_checkpoints", "keep_every"}
TRIED = 100  # conversations of a split that a template has to write when planned
OWN_TEXT = "own"  # the source of a text that its digests identify


def planned(
    graph: Graph,
    folder: Path,
    lab: Path,
    called: str,
    texts: Callable[[str], Text],
) -> dict[str, PlannedStep]:
    """Every node with its fingerprint. Adds problems of the code and the texts to the graph's
    complaints, which name the folder as `called`."""
    complaints = graph.complaints
    if declaration.is_lock(graph.document):
        lockfile.check_source(folder, called)
    steps: dict[str, PlannedStep] = {}
    reach = cache(code_digest.reach)  # thousands of steps use few modules

    @cache
    def found(function: str, own: tuple[str, ...], staged: bool) -> tuple[dict[str, str], str]:
        code = code_of(function, own, folder, lab, reach, staged=staged)
        return code, step_graph.code_sha256(code)

    @cache
    def bad(own: str) -> str | None:
        try:
            code_of("", (own,), folder, lab, reach)
        except code_digest.BadCode as error:
            return str(error)
        return None

    uncallable = cache(partial(code_digest.uncallable, folder))
    told: set[str] = set()
    private, place = _private(graph.nodes), folder.resolve().name
    for turn, (name, node) in enumerate(graph.nodes.items()):
        code, digest, config = dict[str, str](), "", node.config
        try:
            code, digest = found(logical(node.do), node.own, is_staged(node.config))
            wrong = [uncallable(*call) for call in calls_of(node.do, node.config)]
        except code_digest.BadCode as error:
            wrong = [str(error), *map(bad, node.own)]
        for words in filter(None, wrong):
            said = words.replace(str(folder), called)
            if said not in told:
                told.add(said)
                complaints.say(graph.place(name), said)
        try:
            config = _with_prompts(folder, node, _with_source(texts, node))
            config = _with_corpus(graph, name, config)
            config = _with_tokenizer(folder, node, config)
            config = _with_tasks(folder, config, node)
        except task_items.BadTask as error:
            complaints.say(graph.place(name, ("config", error.field)), str(error))
        except BadText as error:
            complaints.lose(graph.source(name), str(error))
        except BadTemplate as error:
            complaints.say(graph.place(name, ("config", "template")), str(error))
        except (OSError, ValueError):  # a name that is too long or invalid
            complaints.lose(graph.source(name), "no file can have this name; write a shorter one")
        if node.do == "export":
            config = {**config, "about": about(graph.experiment.title, called, node.inputs, steps)}
        if complaints.any:
            continue  # no plan results, but further problems are reported
        inputs = {
            key: {one: steps[one].fingerprint for one in these}
            for key, these in node.inputs.items()
        }
        decisive = _decisive(node, config)
        # Without validation: there may be ten thousand, and their parts are already checked.
        steps[name] = PlannedStep.model_construct(
            do=node.do,
            function=logical(node.do),
            own=node.own,
            config=config,
            inputs=inputs,
            code=code,
            resources=node.resources,
            fingerprint=step_graph.fingerprint(logical(node.do), decisive, inputs, digest),
            alias=node.alias,
            turn=turn,
            # The outputs of a private step are shared only within the folder with this name.
            store=f"{place}.{node.do.replace(':', '.')}" if name in private else node.do,
        )
    return steps


def code_of(
    function: str,
    own: Iterable[str],
    folder: Path,
    lab: Path = LAB,
    reach: Callable[[str, Path], dict[str, str]] = code_digest.reach,
    *,
    staged: bool = False,
) -> dict[str, str]:
    """{file: SHA-256} of the code that a step reaches: by its function (`staged`: with a pipeline),
    and by those of the experiment's `folder` that it calls. All of the lab's code is one entry
    without file names. Raises BadCode."""
    code: dict[str, str] = {}
    for one in own:
        module, _, name = one.partition(":")
        if name not in (there := code_digest.defined(module, folder)):
            words = f"`{folder}` has no `{name}` in a module `{module}`"
            words += near(name, there) or "; define it there"
            raise code_digest.BadCode(words)
        code |= reach(module, folder)
    names = [*code_digest.of_lab(code, folder, lab), *parts_of(function, staged=staged)]
    return code | lab_code.entry(names, lab)


@cache
def _known(source: str) -> Text:
    return read_text(source, None)


def text(folder: Path, source: str) -> Text:
    """The text with this name, or in this file of the experiment's folder. Raises BadText."""
    if is_known(source):
        return _known(source)
    if source.endswith(".parquet"):
        return parquet_child.text(source, folder)
    return read_text(source, folder)


def is_known(source: str | None) -> bool:
    """Whether every machine has the text of this name (or there is no text)."""
    return source is None or source in ("stdlib", *SHIPPED)


def _with_source(read: Callable[[str], Text], node: Node) -> dict[str, Any]:
    """A step's configuration; if it names a text, with the text's digests."""
    if node.do not in SOURCED or (source := node.config.get("source")) is None:
        if node.do == "conversations":
            _try_template(node, ())
        return node.config
    found, first = read(source), 1
    if node.do == "conversations":
        rows = list[Conversation]()
        for lines in (found.train, found.validation):
            given = conversations(lines, source, first)  # raises BadText
            rows += islice(given, TRIED)
            deque(given, maxlen=0)
            first += len(lines.splitlines())
        _try_template(node, rows)
    sha256 = {"train": found.train_sha256, "validation": found.validation_sha256}
    return {**node.config, "sha256": sha256}


def _try_template(node: Node, rows: Iterable[Conversation]) -> None:
    """Raises BadTemplate unless the template writes these rows and the simplest ones."""
    if (template := node.config.get("template")) is None:
        return  # an unreadable one
    template_child.try_(template := TEMPLATES.get(template, template))
    for where, messages, tools in rows:
        try:
            template_child.render(template, messages, tools)
        except BadTemplate as error:
            raise BadTemplate(f"{where}: {error}") from error


def _with_corpus(graph: Graph, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """A step's configuration; if it names a corpus, with what the lab's registry says of it. Adds a
    problem if the corpus cannot be used."""
    do = graph.nodes[name].do
    if do not in ("corpus", "tokenizer") or not config.get("corpus"):
        return config
    if graph.complaints.lost(graph.source(name)):
        return config
    found = resolved(config["corpus"], graph.lab.corpora, do)
    if isinstance(found, str):
        graph.complaints.lose(graph.source(name), found)
        return config
    return {**config, "found": found}


def _with_tokenizer(folder: Path, node: Node, config: dict[str, Any]) -> dict[str, Any]:
    """A step's configuration; if it names a tokenizer's file, with its digest. Raises BadText."""
    if node.do != "tokenizer" or node.unread or config.get("corpus"):
        return config
    content = read_file(config["file"], folder)
    return {**config, "sha256": hashlib.sha256(content).hexdigest()}


def files_of(node: Node) -> list[str]:
    """The files of the experiment's folder, other than code, that a step's configuration names; a
    folder ends in a slash."""
    if node.do in TASKED:
        own = [one["task"] for one in node.config.get("lm_eval", ())]
        data = node.config.get("data")
        return [
            *(task for task in node.config.get("tasks", ()) if is_file(task)),
            *(task for task in own if task.endswith(lm_eval_yaml.ENDS)),
            *([f"{data.rstrip('/')}/"] if data else []),
        ]
    file = node.config.get("file") if node.do in ("generate", "tokenizer") else None
    if node.do == "tokenize" and not is_known(node.config.get("source")):
        file = node.config["source"]
    return [] if file is None else [file]


def _with_prompts(folder: Path, node: Node, config: dict[str, Any]) -> dict[str, Any]:
    """A step's configuration; if it names a file of prompts, with these prompts."""
    if node.do != "generate" or node.config.get("file") is None:
        return config
    found = (*config["prompts"], *prompts.read(config["file"], folder))
    much = len(found) + config["held_out"], len(config["seeds"]), config["tokens"]
    if words := drawn_too_many(*much):
        raise BadText(f"{config['file']}: {words}")
    return {**config, "prompts": list(found)}


def about(
    title: str,
    experiment: str,
    inputs: Mapping[str, Iterable[str]],
    steps: Mapping[str, PlannedStep],
) -> dict[str, Any]:
    """What the card of an exported model says of where it is from: the models that are the input
    `models`, by label, and every step that they depend on."""
    models = [name for name in inputs.get("models", ()) if name in steps]
    found = list(models)
    for name in found:  # grows during the loop
        found += [other for other in steps[name].needs if other not in found]
    return {
        "title": title,
        "experiment": experiment,
        "models": {name.partition("/")[2]: name for name in models},
        "steps": {
            name: {"do": of.do, "config": of.config, "inputs": list(of.needs)}
            for name, of in steps.items()
            if name in found
        },
    }


def _with_tasks(folder: Path, config: dict[str, Any], node: Node) -> dict[str, Any]:
    """A step's configuration; if it names files of items, with what they hold. Raises BadTask."""
    if node.do not in TASKED or node.unread:
        return config
    files = {}
    for task in config["tasks"]:
        if task not in MADE:
            data = task_sources.content(task, folder, config["items"])
            kind, items = task_items.items_of(data, task)
            sha256 = hashlib.sha256(data).hexdigest()
            files[task] = {"sha256": sha256, "kind": kind, "items": len(items)}
            if kind == "choice" and node.do == "benchmark":  # plans of another norm are others
                files[task]["norm"] = "characters"
    if node.do == "decontaminate":
        return {**config, "files": files}
    if not config["tasks"] and not lm_eval_tasks(config):
        raise task_items.BadTask("there is no task; write `tasks: [cloze]`, or another one")
    kinds = {about["kind"] for about in files.values()}
    if config.get("samples") and "function" not in kinds:
        words = "no task has functions to write; add `humaneval`, or take this out"
        raise task_items.BadTask(words, "samples")
    config = {**config, "files": files}
    if config.get("data"):
        kept = task_sources.data_files(config["data"], folder)
        config["data_files"] = {
            path: hashlib.sha256(content).hexdigest() for path, content in kept.items()
        }
    if own := task_sources.own_tasks(config, folder):
        config["own_tasks"] = own
    if lm_eval_tasks(config) and not importlib.util.find_spec("lm_eval"):
        words = "lm_eval is not installed; run `pip install 'regatta[eval]'` where the lab runs"
        raise task_items.BadTask(words, "suite" if config["suite"] else "lm_eval")
    return config


def _private(nodes: Mapping[str, Node]) -> set[str]:
    """The nodes that own code computes, and those that depend on them: nobody else shares them.
    Each node comes after its inputs."""
    found: set[str] = set()
    for name, node in nodes.items():
        if node.own or any(not found.isdisjoint(these) for these in node.inputs.values()):
            found.add(name)
    return found


def _decisive(node: Node, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what does not affect the output: how often training saves, how it
    is computed except `dtype` (which changes more than the order of sums), and the file name of a
    text or a tokenizer that its digests identify."""
    if node.do in SOURCED and not is_known(config["source"]):
        return {**config, "source": OWN_TEXT}
    if node.do == "tokenizer":
        return {key: of for key, of in config.items() if key not in ("file", "corpus")}
    if node.do not in TRAINS:
        return config
    kept = {key: value for key, value in config["train"].items() if key not in SAVING}
    rest = {key: value for key, value in config.items() if key != "compute"}
    return {**rest, "train": kept, "dtype": config["compute"]["dtype"]}


def drawn(steps: Mapping[str, PlannedStep]) -> Iterator[str]:
    """A sentence for each step that continues a model without some of the parameters it needs."""
    for name, step in steps.items():
        if fresh := (step.config.get(INIT) or {}).get("fresh") if step.do == "train" else None:
            of = ", ".join(step.inputs[INIT])
            yield f"{name} draws {', '.join(fresh)} by its seed, because {of} has none"


def asked(steps: Mapping[str, PlannedStep]) -> list[str]:
    """A sentence for each step whose labels the operator gets from a language model: what is sent,
    and what it may cost."""
    found = []
    for name, step in steps.items():
        if step.do == "label" and (ask := step.config["ask"]):
            found.append(
                f"{name} asks {ask['model']} about {step.config['documents']:,} documents, with at "
                f"most {ask['max_tokens']:,} tokens and ${ask['max_dollars']:,.2f}"
            )
    return found


def testing(steps: Mapping[str, PlannedStep]) -> list[str]:
    """The steps that run code of models and of task files: solutions and their tests."""
    found = (name for name, step in steps.items() if step.do == "benchmark")
    return [name for name in found if steps[name].config.get("samples")]


def uploads(steps: Mapping[str, PlannedStep]) -> list[str]:
    """The repositories of the Hugging Face Hub to which the lab uploads models afterwards."""
    named = (step.config.get("upload") for step in steps.values() if step.do == "export")
    return list(dict.fromkeys(one for one in named if one is not None))
