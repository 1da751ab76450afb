"""Which mixtures are tried, and what they say about all others. `python mixtures.py` prints the
weights that are tried."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LEAST = 0.04  # of each domain's weight
STEP = 0.02  # between the mixtures among which the best is searched
LAWS = ("own", "own and others", "log-linear")
FLOORS = (0.003, 0.01, 0.03, 0.1)  # added to a weight before its logarithm is taken


def drawn(domains: int, count: int, seed: int) -> np.ndarray:
    """Weights from a flat Dirichlet distribution, no less than LEAST: [count, domains]."""
    flat = np.random.default_rng(seed).dirichlet(np.ones(domains), count)
    return LEAST + (1 - domains * LEAST) * flat


def fit(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """Fits each law to the losses of the mixtures that were tried, keeps the law with the smallest
    error on a mixture that it was not fitted to, and predicts the best of all mixtures. The input
    `scores` is a step `evaluate`, the others are the mixtures. `config` names further mixtures to
    predict, {name: {domain: weight}}. Writes `prediction.json` and `table.md`."""
    parts = json.loads((inputs["scores"] / "parts.json").read_text())
    names = sorted(set(inputs) - {"scores"})
    mixed = {x: json.loads((inputs[x] / "mixture.json").read_text())["weights"] for x in names}
    domains = sorted(mixed[names[0]])
    weights = np.array([_shares(mixed[name], domains) for name in names])
    losses = np.array([_losses(parts, name, domains) for name in names])

    errors = {(law, floor): _left_out(law, floor, weights, losses) for law, floor in _laws()}
    (law, floor), error = min(errors.items(), key=lambda of: of[1])
    searched = np.array(list(_grid(len(domains))))
    predicted = _predict(law, floor, weights, losses, searched)
    best = int(predicted.mean(axis=1).argmin())
    asked = {"best predicted": searched[best], "uniform": np.full(len(domains), 1 / len(domains))}
    asked["best tried"] = weights[losses.mean(axis=1).argmin()]
    asked |= {name: _shares(of, domains) for name, of in config.items()}
    found = {
        name: _about(domains, of, _predict(law, floor, weights, losses, of[None])[0])
        for name, of in asked.items()
    }
    tried = {name: _about(domains, *of) for name, *of in zip(names, weights, losses, strict=True)}
    said = {
        "law": law,
        "floor": floor,
        "error of the mean on a mixture left out": error,
        "errors": {f"{x}, {y}": of for (x, y), of in errors.items()},
        "predicted": found,
        "tried": tried,
    }
    (out / "prediction.json").write_text(json.dumps(said, indent=1) + "\n")
    (out / "table.md").write_text(_table(domains, tried, found))


def _shares(weights: dict[str, float], domains: list[str]) -> np.ndarray:
    of = np.array([weights[name] for name in domains], float)
    return of / of.sum()


def _losses(parts: dict[str, Any], name: str, domains: list[str]) -> np.ndarray:
    """Bits per byte of each domain, the mean over seeds."""
    mine = [of for label, of in parts.items() if label.partition(",")[0] == name]
    return np.array([[of[domain]["bpb"] for domain in domains] for of in mine]).mean(axis=0)


def _laws() -> Iterator[tuple[str, float]]:
    for law in LAWS:
        yield from ((law, floor) for floor in (FLOORS[:1] if law == "log-linear" else FLOORS))


def _predict(
    law: str, floor: float, weights: np.ndarray, losses: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """The loss of each domain by a law that is fitted to `losses`: [asked mixtures, domains]."""

    def features(of: np.ndarray, domain: int) -> np.ndarray:
        if law == "log-linear":  # the logarithm of the loss is linear in the weights
            return of
        own = np.log(of[:, domain] + floor)
        columns = [np.ones(len(of)), own]
        if law == "own and others":
            columns += [of[:, other] for other in range(of.shape[1]) if other != domain]
        return np.stack(columns, axis=1)

    made = []
    for domain in range(losses.shape[1]):
        wanted = np.log(losses[:, domain]) if law == "log-linear" else losses[:, domain]
        factors = np.linalg.lstsq(features(weights, domain), wanted, rcond=None)[0]
        made.append(features(asked, domain) @ factors)
    found = np.stack(made, axis=1)
    return np.exp(found) if law == "log-linear" else found


def _left_out(law: str, floor: float, weights: np.ndarray, losses: np.ndarray) -> float:
    """The root of the mean squared error of the mean loss, of each mixture by all others."""
    errors = []
    for number in range(len(weights)):
        others = np.arange(len(weights)) != number
        one = _predict(law, floor, weights[others], losses[others], weights[~others])
        errors.append(one.mean() - losses[number].mean())
    return float(np.sqrt(np.mean(np.square(errors))))


def _grid(domains: int) -> Iterator[list[float]]:
    """All mixtures whose weights are multiples of STEP and no less than LEAST."""

    def parts(left: int, count: int) -> Iterator[list[int]]:
        if count == 1:
            yield [left]
            return
        for one in range(least, left - least * (count - 1) + 1):
            yield from ([one, *rest] for rest in parts(left - one, count - 1))

    least = round(LEAST / STEP)
    return ([STEP * one for one in of] for of in parts(round(1 / STEP), domains))


def _about(domains: list[str], weights: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    return {
        "weights": {x: round(float(of), 4) for x, of in zip(domains, weights, strict=True)},
        "losses": {x: round(float(of), 4) for x, of in zip(domains, losses, strict=True)},
        "mean": round(float(losses.mean()), 4),
    }


def _table(domains: list[str], tried: dict[str, Any], found: dict[str, Any]) -> str:
    lines = [f"| mixture | {' | '.join(domains)} | mean loss |"]
    lines.append("| --- |" + " --: |" * (len(domains) + 1))
    for how, of in (("tried", tried), ("predicted", found)):
        for name, one in sorted(of.items(), key=lambda item: item[1]["mean"]):
            shares = " | ".join(f"{100 * one['weights'][x]:.0f} %" for x in domains)
            lines.append(f"| {name} ({how}) | {shares} | {one['mean']:.4f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for number, of in enumerate(drawn(4, 12, 19), 1):
        print(f"m{number:02d}", " ".join(f"{weight:.3f}" for weight in of))
