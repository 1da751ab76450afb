"""What a given tokenizer makes of an experiment, before anything trains: too many tokens for a
model's rows, or too few of the validation text. Its file is a stranger's, so it is read in a child
with bounded time and memory; what that cannot say is found when the steps run."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from engine.data.lab_texts import BadText, Text, read_file, shortest_validation
from engine.data.tokenize import BadTokenizer, Tokenizer
from runner.isolation import limited
from runner.lib.yaml_lines import Path as Place
from runner.spec.data_steps import GivenTokenizer, Tokenize
from runner.spec.graph import Graph, Node
from runner.spec.training_steps import Evaluate, Train

LIMITS = limited.Limits(seconds=20.0, memory=2 << 30)
MOST = 4 << 20  # bytes of a validation text that is tokenized for a plan
Said = Iterator[tuple[str, Place, str]]


def problems(graph: Graph, folder: Path, texts: Callable[[str], Text]) -> Said:
    """(node, place, words) for each model with too few rows, and for each evaluation of more tokens
    than there are."""

    @cache
    def counted(file: str, source: str | None) -> tuple[int, int]:
        text = texts(source).validation if source else b""
        given = read_file(file, folder).decode(), text[:MOST].decode(errors="ignore")
        size, tokens = limited.call(_counted, *given, limits=LIMITS, expected=BadTokenizer)
        return int(size), int(tokens) if len(text) <= MOST else len(text)

    for name, node in graph.nodes.items():
        for store in _stores(graph, node):
            given = store.checked if isinstance(store.checked, Tokenize) else None
            source = given.source if given and node.do == "evaluate" else None
            try:
                if of := _given(graph, store):
                    size, tokens = counted(of.config["file"], source)
                    tokens += of.config["end_of_document"] is not None
                elif given and source and given.tokenizer == "byte" and not graph.experiment.data:
                    size, tokens = 0, len(texts(source).validation)
                else:
                    continue
            except (BadText, BadTokenizer, limited.Refused, OSError, ValueError):
                continue  # which is reported elsewhere, or when the step runs
            called = f" of {of.config['file']}" if of else ""
            if isinstance(made := node.checked, Train) and not made.own.model:
                rows = int(node.config["model"]["vocab_size"])
                if rows < size:
                    words = f"there are {size:,} tokens{called}, and the model has {rows:,} rows; "
                    yield name, ("config", "model", "vocab_size"), f"{words}write {size}"
            elif source and tokens < (needed := _needed(graph, node)):
                words = f"the validation text of {source} has {tokens:,} tokens{called}, and "
                words += f"{node.config['tokens']:,} targets in windows need {needed:,}; use a "
                yield name, ("config", "tokens"), f"{words}longer text or evaluate fewer"


def _stores(graph: Graph, node: Node) -> list[Node]:
    """The token stores that a node trains on or evaluates, without mixtures."""
    if node.unread or not isinstance(node.checked, Train | Evaluate):
        return []
    read = dict.fromkeys(one for of in node.inputs.values() for one in of)
    return [x for one in read if (x := graph.nodes[one]).do in ("tokenize", "conversations")]


def _given(graph: Graph, store: Node) -> Node | None:
    """The node that has the tokenizer of a token store in a file of the experiment's folder."""
    while store.do in ("tokenize", "conversations") and store.inputs.get("tokenizer"):
        store = graph.nodes[store.inputs["tokenizer"][0]]
    given = store.checked if isinstance(store.checked, GivenTokenizer) else None
    return store if given and given.file and not store.unread else None


def _needed(graph: Graph, node: Node) -> int:
    """How many tokens an evaluation needs."""
    models = [graph.nodes[one].config.get("model", {}) for one in node.inputs.get("models", ())]
    lengths = [of["seq_len"] for of in models if isinstance(of, dict) and of.get("seq_len")]
    return max((shortest_validation(one, node.config["tokens"]) for one in lengths), default=0)


def _counted(definition: str, text: str) -> tuple[int, int]:
    """The tokens of a tokenizer, and those that it makes of a text. Raises BadTokenizer."""
    tokenizer = Tokenizer(definition)
    return tokenizer.vocab_size, len(tokenizer.encode_batch([text])[0])
