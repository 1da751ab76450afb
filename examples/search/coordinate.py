"""A program that proposes for `regatta search`: coordinate descent over values of keys.

    regatta search experiments/NAME --budget 20 \\
        --propose "python examples/search/coordinate.py train.learning_rate=0.001,0.003,0.01 ..."

Each argument is a key of the declaration and the values to try, in order; the baseline's own value
is one of them. `--random` tries points of the grid by chance instead. The program keeps nothing:
each time, it reads all trials on stdin, and the search follows from them (`runner.lib.search`).
"""

import json
import math
import sys
from typing import Any

import yaml

from runner.lib import search
from runner.lib.search import At, Space

Grid = dict[str, list[Any]]


def main(arguments: list[str]) -> str:
    """The next declaration; empty if there is nothing more to try."""
    known = json.load(sys.stdin)
    grid = {key: yaml.safe_load(f"[{values}]") for key, _, values in map(parted, arguments) if key}
    how: search.How = "random" if "--random" in arguments else "coordinate"
    baseline = yaml.safe_load(known["trials"][0]["declaration"])
    space = Space(
        how=how,
        grid={key: range(len(values)) for key, values in grid.items()},
        start=point(baseline, grid),
        seeds=known["seeds"],
        trials=(len(known["trials"]) + known["trials_left"]) * len(known["seeds"]),
    )
    after = search.state(space, losses(known, grid)).next
    return "" if after is None else changed(baseline, grid, after[0])


def parted(argument: str) -> tuple[str, str, str]:
    """A key and its values; an option has none."""
    return ("", "", "") if argument.startswith("--") else argument.partition("=")


def losses(known: dict[str, Any], grid: Grid) -> dict[tuple[At, int], float]:
    """The loss of each point and seed. A declaration that was refused is as bad as can be."""
    sign = 1 if known["better"] == "lower" else -1
    found: dict[tuple[At, int], float] = {}
    for trial in known["trials"]:
        at = point(yaml.safe_load(trial["declaration"]), grid)
        scores = trial["scores"] or [None] * len(known["seeds"])
        for seed, score in zip(known["seeds"], scores, strict=False):
            found[at, seed] = math.inf if score is None else sign * score
    return found


def point(declared: dict[str, Any], grid: Grid) -> At:
    """The place of each key's value."""
    return tuple(values.index(at(declared, key)) for key, values in grid.items())


def at(declared: dict[str, Any], key: str) -> Any:
    """The value of a key such as train.learning_rate."""
    value: Any = declared
    for part in key.split("."):
        value = value[part]
    return value


def changed(baseline: dict[str, Any], grid: Grid, to: At) -> str:
    """The baseline with the values of a point."""
    declared = json.loads(json.dumps(baseline))
    for (key, values), place in zip(grid.items(), to, strict=True):
        *path, last = key.split(".")
        at(declared, ".".join(path))[last] = values[place]
    return yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)


if __name__ == "__main__":
    print(main(sys.argv[1:]), end="")
