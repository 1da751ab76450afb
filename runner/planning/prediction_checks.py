"""Predictions that no run of a graph could decide. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from runner.lib.canonical_json import to_json
from runner.lib.problems import Said, near
from runner.schema import metrics, prediction_forms
from runner.schema.record import PlannedArm, Prediction
from runner.schema.record.plans import run_of
from runner.spec import measured
from runner.spec.graph import Graph, Node


def undecided(
    graph: Graph, arms: Mapping[str, PlannedArm], predictions: Sequence[Prediction]
) -> Said:
    """Predictions about arms that are not trained, or that no run could decide, and scores that are
    not comparable."""
    where = graph.experiment.arms_at
    for prediction in predictions:
        missing = [name for name in prediction.arms if name not in {*arms, *graph.unread}]
        for name in missing:
            words = f"the preregistration predicts something of the arm `{name}`, which is not here"
            yield where, words + (near(name, arms) or "; declare it")
        yield from ((where, words) for words in _unmeasured(graph, prediction))
        if arms.keys() >= {*prediction.arms}:
            yield from ((where, words) for words in _of_no_law(prediction, arms))
    scored = {
        (node.inputs["tokens"], node.config["tokens"]): name
        for name, node in graph.nodes.items()
        if node.do == "evaluate" and not node.unread and "tokens" in node.inputs
    }
    if predictions and len(scored) > 1:
        one, another = sorted(scored.values())[:2]
        yield (
            graph.place(another),
            f"`{one}` and `{another}` score on different tokens, and predictions are judged on one "
            "text; score all models by one step",
        )
    for metric in dict.fromkeys(one.metric for one in predictions if one.metric != metrics.BPB):
        if len(by := _measured_by(graph, metric)) > 1:
            one, another = sorted(by)[:2]
            yield (
                graph.place(another),
                f"`{one}` and `{another}` measure `{metric}` differently, and predictions are "
                "judged on the same items; measure all models by one step",
            )


def _measured_by(graph: Graph, metric: str) -> list[str]:
    """The steps that measure a metric, one for each configuration and text."""
    found: dict[tuple[bytes, tuple[str, ...]], str] = {}
    for name, node in graph.nodes.items():
        if node.unread or not measured.measures(node) or "tokens" not in node.inputs:
            continue
        if any(
            metric in measured.of_model(node, model, graph.nodes)
            for model in measured.models_of(name, node)
        ):
            found.setdefault((to_json(node.config), node.inputs["tokens"]), name)
    return list(found.values())


def _unmeasured(graph: Graph, prediction: Prediction) -> Iterator[str]:
    """That no step measures the metric of a prediction of an arm that is trained."""
    found = measured.of_graph(graph.nodes)
    for arm in prediction.arms:
        steps = [name for name, node in graph.nodes.items() if _trains(name, node, arm)]
        metric = prediction.metric
        if steps and metric not in (known := found.get(steps[0], ())):
            yield (
                f"the preregistration predicts `{metric}` of the arm `{arm}`, and "
                f"{metrics.unknown(metric, known)}"
            )
            return


def _trains(name: str, node: Node, arm: str) -> bool:
    run = run_of(name, node.do, node.config)
    return run is not None and run[0] == arm


def _of_no_law(prediction: Prediction, arms: Mapping[str, PlannedArm]) -> Iterator[str]:
    """Why no run could decide a prediction by a law: its arms have too few sizes, or are not
    smaller than the arm that they forecast."""
    fitted, axis = prediction.exponent or prediction.smaller, prediction.axis
    if not (fitted and axis):
        return
    what = prediction_forms.AXES["model_flops" if axis == "hardware_flops" else axis]
    if unknown := [name for name in prediction.arms if arms[name].model_flops is None]:
        yield (
            f"the preregistration predicts a law over the arm `{unknown[0]}`, but its model is the "
            f"experiment's own, so that its {what} are not known beforehand"
        )
        return
    spent = {name: prediction_forms.spent(arms[name], axis) for name in prediction.arms}
    sizes = len({spent[name] for name in fitted})
    needed = prediction_forms.FEWEST["exponent" if prediction.exponent else "smaller"]
    if sizes < needed:
        yield (
            f"the preregistration predicts a law over arms of {needed} different {what} at least, "
            f"and `{fitted[0]}` and the others have {sizes}"
        )
    largest = prediction.arm
    for name in fitted if largest is not None else ():
        if spent[name] >= spent[str(largest)]:
            yield (
                f"the preregistration predicts `{largest}` from smaller arms, and `{name}` is not "
                f"smaller: {spent[name]:,} {what}, where `{largest}` has {spent[str(largest)]:,}"
            )
