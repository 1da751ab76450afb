"""Experiment → Graph: each step with its whole configuration, and a sweep as one node per point.
Runs nothing; errors have their line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from engine.config import recipes, stage_choice, stages
from engine.config.schema import MeshConfig, ModelConfig, TrainConfig
from engine.config.stages import StagedCompute
from runner.lib.canonical_json import to_json
from runner.lib.complaints import Complaints
from runner.lib.problems import MAX_PROBLEMS, Document, Said, near, nearest
from runner.lib.yaml_lines import Path
from runner.schema import step_graph
from runner.schema.devices import Kind
from runner.schema.lab_config import DEVICES, LabConfig
from runner.schema.record import Resources, arm_named, run_of
from runner.spec import initial_models, step_checks, tuning
from runner.spec.data_steps import FUNCTION, Tokenize
from runner.spec.experiment import Experiment
from runner.spec.model_steps import Generate
from runner.spec.nodes import Graph as Graph
from runner.spec.nodes import Node as Node
from runner.spec.step_types import BUILT_IN, INIT, SETTINGS, own_of, schema_of
from runner.spec.steps import NO_POINT, SEEDS, Point
from runner.spec.training_steps import Train

M = TypeVar("M", bound=BaseModel)
BATCH = ("train_batch_size", "gradient_accumulation_steps")
ONE_DEVICE = MeshConfig()
MAX_NODES = 10_000
MAX_LABEL = 100  # bytes of a point's name, which becomes a part of file names


def written_out(
    document: Document, experiment: Experiment, complaints: Complaints, lab: LabConfig
) -> Graph:
    """The graph of an experiment in this document and lab, as far as it is readable. Adds problems
    to `complaints`. Raises BadExperiment if it would be too large."""
    reader = _Reader(experiment, complaints, lab)
    steps, found = reader.steps, reader.points()
    made: dict[str, Node] = {}
    for name in reader.order():
        step = steps[name]
        for node, (config, checked) in found[name].items():
            unread = checked is None and not re.fullmatch(FUNCTION, step.do)
            read = step_checks.read_by(step.do, config, step.inputs)
            inputs = {
                key: tuple(found.get(of, ())) for key, of in step.inputs.items() if key in read
            }
            if of := reader.origins.get(name):
                one = f"{step.inputs[INIT]}/{of[node.partition('/')[2]]}"
                inputs[INIT] = (one,) if one in inputs[INIT] else ()
            if SETTINGS in inputs:
                inputs[SETTINGS], said = tuning.of_arm(node, inputs[SETTINGS])
                for inside, words in said:
                    complaints.say(experiment.place(name, inside), words)
            if isinstance(checked, Train):
                checked, inputs = _first_as_tokens(checked, inputs)
                checked, said = initial_models.filled_in(checked, _source(inputs, made))
                config = checked.model_dump(mode="json")
                point = Point(node.partition("/")[2])
                for inside, words in said:
                    complaints.say(experiment.place(name, inside, point), words)
            made[node] = Node(
                do=step.do,
                own=own_of(step.do, config) or _own_models(step.do, inputs, made),
                config=config,
                inputs=inputs,
                resources=step.resources or experiment.devices,
                checked=checked,
                alias=step.alias,
                unread=unread,
            )
    graph = Graph(document, experiment, made, complaints, lab)
    for node, words in _unlike(made):
        complaints.say(graph.place(node), words)
    for node, number, words in _no_room(made):
        if not complaints.lost(graph.place(node, ("config", "tokens"))):
            complaints.say(graph.place(node, ("config", "prompts", number)), words)
    for node, words in _not_exported(made):
        complaints.say(graph.place(node, ("inputs", "models")), words)
    return graph


def _unlike(nodes: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Nodes of one arm that differ in more than the seed: their runs cannot be averaged."""
    first: dict[str, str] = {}
    seen: dict[tuple[str, int], str] = {}
    for name, node in nodes.items():
        if node.unread or not (run := run_of(name, node.do, node.config)):
            continue
        other = nodes[first.setdefault(run[0], name)]
        same = {**node.config, "seed": 0} == {**other.config, "seed": 0}
        twice = seen.setdefault(run, name) != name
        if twice or _without_seeds(node) != _without_seeds(other) or not same:
            how = "has the same seed" if twice else "differs in more than the seed"
            words = (
                f"what `{name}` trains would be called `{run[0]}`, as what `{first[run[0]]}` "
                f"trains is, and {how}; name the point or the step otherwise"
            )
            yield name, words


def _no_room(nodes: Mapping[str, Node]) -> Iterator[tuple[str, int, str]]:
    """Prompts of `generate` nodes, by number, that leave no room in a model's context. With a
    tokenizer that is not known yet, a prompt has a token at least."""
    for name, node in nodes.items():
        models = [nodes[of] for of in node.inputs.get("models", ())]
        lengths = [of.config["model"]["seq_len"] for of in models if isinstance(of.checked, Train)]
        if not isinstance(node.checked, Generate) or not lengths:
            continue
        tokens = (nodes[of] for of in node.inputs.get("tokens", ()))
        bytes_ = all(
            isinstance(x := of.checked, Tokenize) and x.tokenizer == "byte" for of in tokens
        )
        for number, prompt in enumerate(node.checked.prompts):
            more = node.checked.tokens
            if (len(prompt.encode()) if bytes_ else 1) + more > min(lengths):
                words = (
                    f"with {more} tokens after it, it is longer than the context of a model, "
                    f"{min(lengths)} tokens (seq_len); shorten it, or lower `tokens`"
                )
                yield name, number, words


def _not_exported(nodes: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Nodes that export own models."""
    for name, node in nodes.items():
        models = node.inputs.get("models", ()) if node.do == "export" else ()
        trained = ((of, nodes[of].checked) for of in models)
        own = [(of, it.own.model) for of, it in trained if isinstance(it, Train) and it.own.model]
        for of, function in own[:1]:
            words = f"`{of}` trains the own model `{function}`, and `transformers` has no code for "
            yield name, f"{words}it; name a step that trains a model of the lab"


def _without_seeds(node: Node) -> dict[str, tuple[str, ...]]:
    """Its inputs; of a model that each seed continues, the arm."""
    return {
        key: tuple(map(arm_named, these)) if key == INIT else these
        for key, these in node.inputs.items()
    }


def _source(
    inputs: Mapping[str, tuple[str, ...]], made: Mapping[str, Node]
) -> initial_models.Source | None:
    """What made the model that a `train` node continues."""
    if INIT not in inputs:
        return None
    name = next(iter(inputs[INIT]), "")
    node = made.get(name)
    trained = node.checked if node and isinstance(node.checked, Train) else None
    trains = node is None or node.do == "train"
    return initial_models.Source(name=name, trained=trained, trains=trains)


def _first_as_tokens(
    config: Train, inputs: Mapping[str, tuple[str, ...]]
) -> tuple[Train, dict[str, tuple[str, ...]]]:
    """The same with the input that it trains on first as `tokens`: a point of a sweep is the step
    that somebody would have declared for it alone."""
    first, found = config.tokens, dict(inputs)
    if first not in ("tokens", INIT) and first in found:
        found["tokens"] = found[first]
        if all(phase.tokens != first for phase in config.train.phases):
            del found[first]
    return config.model_copy(update={"tokens": "tokens"}), found


Config = tuple[dict[str, Any], BaseModel | None]  # and validated, for a built-in


class _Reader:
    """Reads steps one by one and collects problems."""

    def __init__(self, experiment: Experiment, complaints: Complaints, lab: LabConfig) -> None:
        self.declared = experiment.steps_in(lab.devices)
        self.steps, self.origins = initial_models.spread(self.declared)
        self._experiment, self._lab = experiment, lab
        self.complaints = complaints

    def points(self) -> dict[str, dict[str, Config]]:
        """The nodes of each step and their configurations. Raises BadExperiment if there are too
        many."""
        self.complaints.say_all(self._experiment.senseless(self._lab))
        if (count := sum(step.combinations for step in self.steps.values())) > MAX_NODES:
            words = (
                f"{count:,} steps are more than the {MAX_NODES:,} that one experiment may have; "
                "take some out"
            )
            self.complaints.say(("steps",), words)
            self.complaints.end()  # sweeps are expanded next
        return {name: self._points(name) for name in self.steps}

    def order(self) -> list[str]:
        """The steps, each after its inputs; in declared order if there is a cycle."""
        needs = {
            name: {of for of in step.inputs.values() if of in self.steps}
            for name, step in self.steps.items()
        }
        try:
            return step_graph.order(needs)
        except step_graph.BadGraph as error:
            self._say(error.steps[0], ("inputs",), str(error))
            return list(self.steps)

    def _points(self, name: str) -> dict[str, Config]:
        if self.complaints.enough:
            return {}
        step = self.steps[name]
        too_large = list(step_checks.too_large(name, self.steps))
        wrong = step_checks.of_step(name, self.declared, self._lab.devices)
        for inside, words in (*too_large, *wrong):
            self._say(name, inside, words)
        if step.do not in BUILT_IN and not re.fullmatch(FUNCTION, step.do):
            if not (meant := nearest(step.do, BUILT_IN)):
                return {}
            self.steps[name] = step = step.model_copy(update={"do": meant})
        sweep, seeds = step.sweep, [*dict.fromkeys(step.seeds)]  # without duplicates
        if too_large:  # one point, to find further problems; all points might fill the memory
            sweep, seeds = step.first, seeds[:1]
        points = step_graph.points(sweep, seeds)
        if step.is_swept and not too_large and len(points) < step.combinations:
            words = "two of its points have the same name; name them in a list"
            self._say(name, ("sweep",), words)
        found: dict[str, Config] = {}
        read: dict[str, Config] = {}  # by everything that varies except the seed
        bad = 0
        for label, values in points.items():
            if self.complaints.enough or bad > MAX_PROBLEMS:
                break
            if len(label.encode()) > MAX_LABEL:
                words = f"a point would be called `{label[:40]}…`, which is too long; name it"
                self._say(name, ("sweep",), f"{words} in a list, as {{name: wide, …}}")
                break
            node = f"{name}/{label}" if step.is_swept else name
            alike, seed = repr({**values, "seed": None}), values.get("seed")
            if step.do == "train" and alike in read and type(seed) is int and 0 <= seed < SEEDS:
                config, checked = read[alike]
                copied = checked.model_copy(update={"seed": seed}) if checked else None
                found[node] = {**config, "seed": seed}, copied
                continue
            read[alike] = found[node] = self._config(name, Point(label, values))
            bad += found[node][1] is None and step.do in BUILT_IN
        if step.do == "train" and len(found) == len(points) and not bad:
            self._say_idle(name, [config for config, _ in read.values()])
        return found

    def _say_idle(self, name: str, configs: Sequence[Mapping[str, Any]]) -> None:
        """Report inputs that no point of a `train` step reads."""
        inputs = self.steps[name].inputs
        for key in sorted(
            set(inputs).difference(*(step_checks.read_by("train", one, inputs) for one in configs))
        ):
            words = f"no phase has `{key}` as its `tokens`, so that it would not be trained on"
            self._say(name, ("inputs", key), words + near(key, ("tokens",)))

    def _config(self, name: str, point: Point) -> Config:
        """A step's configuration at a point of its sweep, for a built-in with every default filled
        in; if it is invalid, its valid parts."""
        step = self.steps[name]
        try:
            config = step_graph.merged(step.config, point.values)
            if step.do not in BUILT_IN:
                to_json(config)
                return config, None
            config = recipes.filled(config)
        except KeyError as error:
            words = f"`{error.args[0]}` leads through something that is no mapping; write a section"
            self._say(name, ("sweep",), words)
            return {}, None
        except ValueError:
            self._say(name, ("config",), "it has a number that is not finite; write a finite one")
            return {}, None
        checked, config, lost = self.complaints.read(
            schema_of(step.do, config),
            config,
            lambda place: self._experiment.place(name, ("config", *place), point),
            {"arm": arm_named(f"{name}/{point.label}")},
        )
        if self.complaints.enough:
            return {}, None
        if step.do == "train":
            checked = self._spread(name, checked, config, point)
        elif step.do == "tune" and (step.resources or self._experiment.devices).count > 1:
            self._say(name, ("resources", "count"), tuning.ON_ONE)
        elif step.do == "tune" and checked and stages.is_staged(config):
            words = "trials train on one device so far; write `pipeline: 1`"
            self._say(name, ("config", "compute", "mesh"), words, point)
        if checked:
            config = checked.model_dump(mode="json")
        for inside, words in step_checks.of_config(step, config, self.steps, lost):
            if self._experiment.data is None or "phases" not in inside:  # else reported for arms
                self._say(name, inside, words, point)
        return config, checked

    def _spread(
        self, name: str, checked: BaseModel | None, config: Mapping[str, Any], point: Point
    ) -> BaseModel | None:
        """A `train` step over all of its devices: with the declared mesh, or else a chosen one. If
        it is invalid, the valid parts of its `config` are checked."""
        place = self._experiment.place(name, ("resources",))
        if self.complaints.lost(place) or self.complaints.lost((*place, "count")):
            return checked
        asked = self.steps[name].resources or self._experiment.devices
        if asked.spot:
            for inside, words in _of_spot(asked, self._lab.devices.get(asked.kind), checked):
                self._say(name, inside, words, point)
        compute = _section(StagedCompute, written := config.get("compute", {}))
        if compute is None:
            return checked
        if compute.mesh.pipeline > 1 and config.get("own"):
            words = "what own functions train is not cut into stages; write `pipeline: 1`"
            self._say(name, ("config", "compute", "mesh"), words, point)
            return checked
        own = "model" in (config.get("own") or ())
        if own and compute.mesh.devices > compute.mesh.data:
            words = "each device has a copy of a model of one's own; split `data` alone"
            self._say(name, ("config", "compute", "mesh"), words, point)
            return checked
        model = None if own else _section(ModelConfig, config.get("model"))
        train = _section(TrainConfig, of_train := config.get("train", {}))
        each, kind = asked.count // compute.mesh.pipeline, self._lab.devices.get(asked.kind)
        if compute.mesh.inside == ONE_DEVICE and each and kind:
            chosen, within = None, compute.inside
            if model and train:
                on, may_remat = kind.hardware(asked.count, asked.slices), "remat" not in written
                chosen = stage_choice.choose_inside(model, train, compute, on, may_remat)
            copies = within.model_copy(update={"mesh": MeshConfig(data=each)})
            compute = compute.with_inside(chosen.compute if chosen else copies)
        if train is None:  # for what divides, a batch and its parts are enough
            batch = {key: of_train[key] for key in BATCH if key in of_train}
            train = _section(TrainConfig, {**batch, "num_train_steps": 1, "learning_rate": 1.0})
        wrong = stages.misfits(compute, asked.count, asked.slices, model, train)
        if compute.mesh.pipeline > 1 and not wrong and kind and model and checked:
            on = kind.hardware(asked.count)
            compute = stage_choice.choose(model, train, compute, on, kind.peak_flops).compute
        for misfit in wrong:
            self._say(name, ("config", *misfit.field.split(".")), misfit.words, point)
        return checked.model_copy(update={"compute": compute}) if checked else None

    def _say(self, step: str, inside: Path, words: str, point: Point = NO_POINT) -> None:
        self.complaints.say(self._experiment.place(step, inside, point), words)


def _of_spot(asked: Resources, kind: Kind | None, checked: BaseModel | None) -> Said:
    """Problems with training on devices that may be taken away."""
    if kind and kind.spot_price is None:
        words = (
            f"the lab has no spot price for `{asked.kind}`; write `spot_price` below it in "
            f"{DEVICES}, or take `spot` out"
        )
        yield ("resources", "spot"), words
    if isinstance(checked, Train):
        train = checked.train
        if train.checkpoint_every >= train.num_train_steps > 1 and not train.checkpoint_seconds:
            words = (
                "spot devices may be taken away, and this saves only at the end; write "
                f"checkpoint_every: {max(1, train.num_train_steps // 10)} or take `spot` out"
            )
            yield ("config", "train", "checkpoint_every"), words


def _section(schema: type[M], value: object) -> M | None:
    """A part of a configuration, validated; None if it is invalid."""
    try:
        return schema.model_validate(value)
    except ValidationError:
        return None


def _own_models(
    do: str, inputs: Mapping[str, tuple[str, ...]], made: Mapping[str, Node]
) -> tuple[str, ...]:
    """The own functions that a step calls to score own models: those of the steps that trained the
    models, even if own steps have changed the models since."""
    found: dict[str, None] = {}
    asks = do in step_graph.ASKS_MODELS
    waiting = list(inputs.get("models", ())) if asks else []
    seen = set(waiting)
    for name in waiting:  # grows during the loop
        if (node := made.get(name)) is None:  # part of a cycle
            continue
        if node.do == "train" and (model := (node.config.get("own") or {}).get("model")):
            found[model] = None
        elif node.do not in BUILT_IN:
            fresh = {other for these in node.inputs.values() for other in these} - seen
            seen |= fresh
            waiting += sorted(fresh)
    return tuple(found)
