"""`ablate:` and `isoflop:` of an experiment: short forms for its arms. Pure.

    ablate:                                      # arms baseline-small, no-qk-norm-small, …
      sizes: {small: {model: {…}}, large: {model: {…}}}
      hold_one_out: {qk-norm: {model: {qk_norm: none}}}
      add_one: {soap: {train: {optimizer: soap}}}

    isoflop:                                     # arms small-1e12, small-4e12, …
      budgets: [1e12, 4e12]
      sizes: {small: {model: {…}}, large: {model: {…}}}

Sizes complete the common settings, and parts complete the sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import flops, recipes
from engine.config.schema import ModelConfig
from runner.lib.format import many
from runner.lib.problems import Said
from runner.schema.record import (
    AblatedPart,
    IsoflopArm,
    PlannedAblation,
    PlannedArm,
    PlannedIsoflop,
)
from runner.spec.arms import Arm, ArmName, Layer, completed

MAX_NAME = 40  # characters of an arm's name

MAX_PARTS = 100  # sizes, budgets, and parts of a recipe
BASELINE = "baseline"
FEWEST_SIZES = 2  # of an ablation: one has no slope, and so no speed-up
FEWEST_CURVED = 3  # of an IsoFLOP analysis: a parabola has three coefficients
FEWEST_STEPS = 10  # of a run of a budget: fewer miss it by more than 5 %

Layers = tuple[Layer, ...]
Sizes = Annotated[dict[ArmName, Arm], Field(min_length=1, max_length=MAX_PARTS)]
Changes = Annotated[dict[ArmName, Arm], Field(max_length=MAX_PARTS)]
Budgets = Annotated[tuple[Annotated[float, Field(gt=0, le=1e30)], ...], Field(max_length=MAX_PARTS)]


class Ablate(BaseModel):
    """A baseline at several sizes, and the same with one part changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sizes: Sizes = Field(
        description="at least two, which complete model, train, … of the experiment; together they "
        "are the baseline"
    )
    hold_one_out: Changes = Field(
        default={}, description="parts that the baseline has: for each, what takes it out"
    )
    add_one: Changes = Field(
        default={}, description="parts that the baseline has not: for each, what puts it in"
    )

    def layers(self, base: Layer) -> dict[str, Layers]:
        """The arms, each with what it consists of."""
        found: dict[str, Layers] = {}
        sizes = {
            size: (base, Layer(("ablate", "sizes", size), arm)) for size, arm in self.sizes.items()
        }
        for size, whole in sizes.items():
            found[_arm("", BASELINE, size)] = whole
        for part, changes in self._parts():
            for name, change in changes.items():
                for size, whole in sizes.items():
                    found[_arm(part, name, size)] = (*whole, Layer(("ablate", part, name), change))
        return found

    def planned(self) -> PlannedAblation:
        """As the plan has it."""

        def arms(part: str, name: str) -> tuple[str, ...]:
            return tuple(_arm(part, name, size) for size in self.sizes)

        return PlannedAblation(
            sizes=tuple(self.sizes),
            baseline=arms("", BASELINE),
            parts=tuple(
                AblatedPart(name=name, held_out=part == "hold_one_out", arms=arms(part, name))
                for part, changes in self._parts()
                for name in changes
            ),
        )

    def problems(self) -> Said:
        """Problems that show before anything is counted."""
        if len(self.sizes) < FEWEST_SIZES:
            words = "one size has no slope, so that no speed-up can be computed; add a larger size"
            yield ("ablate", "sizes"), words
        if not (self.hold_one_out or self.add_one):
            words = "there is no part to hold out or to add; write one into `hold_one_out`"
            yield ("ablate",), words
        names = [_arm("", BASELINE, size) for size in self.sizes]
        for part, changes in self._parts():
            for name in changes:
                mine = [_arm(part, name, size) for size in self.sizes]
                yield from ((("ablate", part, name), words) for words in _misnamed(mine, names))
                names += mine

    def _parts(self) -> tuple[tuple[str, Mapping[str, Arm]], ...]:
        return ("hold_one_out", self.hold_one_out), ("add_one", self.add_one)


class Isoflop(BaseModel):
    """Each budget of compute, spent on models of several sizes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: Annotated[Budgets, Field(min_length=1)] = Field(
        description="model FLOPs of a run; num_train_steps follow from them"
    )
    sizes: Sizes = Field(
        description="at least three, which complete model, train, … of the experiment"
    )
    tokens_per_parameter: tuple[float, float] = Field(
        default=(0.0, 1e9), description="the least and the most; other runs are left out"
    )
    ahead: Budgets = Field(
        default=(), description="further budgets, whose best size and tokens are to be computed"
    )

    def layers(self, base: Layer) -> dict[str, Layers]:
        """The arms, each with what it consists of."""
        return {_of_budget(size, budget): layers for budget, size, layers in self._runs(base)}

    def planned(self, base: Layer) -> PlannedIsoflop:
        """As the plan has it."""
        return PlannedIsoflop(
            arms=tuple(
                IsoflopArm(arm=_of_budget(size, budget), budget=budget, size=size)
                for budget, size, _ in self._runs(base)
            ),
            ahead=self.ahead,
        )

    def _runs(self, base: Layer) -> list[tuple[float, str, Layers]]:
        low, high = self.tokens_per_parameter
        found = []
        for size, arm in self.sizes.items():
            whole = (base, Layer(("isoflop", "sizes", size), arm))
            model, batch = _known(whole)
            for number, budget in enumerate(self.budgets):
                steps = 1
                if model is not None:
                    steps = round(budget / flops.model_flops(model, batch * model.seq_len))
                    seen = steps * batch * model.seq_len / flops.parameters(model)
                    if not low <= seen <= high:
                        continue
                follows = Arm(train={"num_train_steps": max(steps, 1)})
                at = ("isoflop", "budgets", number)
                found.append((budget, size, (*whole, Layer(at, follows, derived=True))))
        return sorted(found, key=lambda run: run[0])

    def problems(self, base: Layer) -> Said:
        """Problems that show before anything is planned."""
        if len(self.sizes) < FEWEST_CURVED:
            words = f"a parabola needs {FEWEST_CURVED} sizes at least; add some"
            yield ("isoflop", "sizes"), words
        if len(set(self.budgets)) < len(self.budgets):
            yield ("isoflop", "budgets"), "a budget is here twice; take one out"
        if "num_train_steps" in base.arm.train:
            words = "it follows from the budgets of `isoflop`; take it out"
            yield ("train", "num_train_steps"), words
        phases = [one.train.get("phases") for one in (base.arm, *self.sizes.values())]
        if any("train_batch_size" in str(one) for one in phases):
            words = "a budget counts one batch, and a phase changes train_batch_size; take that out"
            yield ("isoflop", "budgets"), words
        runs = self._runs(base)
        for number, budget in enumerate(self.budgets):
            left = [size for of, size, _ in runs if of == budget]
            if len(self.sizes) >= FEWEST_CURVED > len(left):
                words = (
                    f"tokens_per_parameter leaves {many(len(left), 'size')} for it, and a parabola "
                    f"needs {FEWEST_CURVED}; add sizes, or widen the two bounds"
                )
                yield ("isoflop", "budgets", number), words
        names: list[str] = []
        for size, arm in self.sizes.items():
            at = ("isoflop", "sizes", size)
            mine = [_of_budget(size, budget) for budget in dict.fromkeys(self.budgets)]
            yield from ((at, words) for words in _misnamed(mine, names))
            names += mine
            whole = (base, Layer(at, arm))
            if completed(whole)["own"].get("model"):
                yield at, "the FLOPs of an own model are not known before the run; take it out"
                continue
            model, batch = _known(whole)
            least = min(self.budgets)
            if model is None:
                continue  # its problems are reported for its arms
            each = flops.model_flops(model, batch * model.seq_len)
            if (steps := least / each) < FEWEST_STEPS:
                words = (
                    f"the budget {least:.3g} is {steps:.2g} steps of {each:.3g} FLOPs, and "
                    f"{FEWEST_STEPS} are the fewest; make the budget larger, or the batch or this "
                    "size smaller"
                )
                yield at, words


def unlike(ablate: Ablate, arms: Mapping[str, Any], planned: Mapping[str, PlannedArm]) -> Said:
    """Parts that change nothing, and sizes that are not larger than those before. `arms` are the
    configurations of the arms, by name."""
    study = ablate.planned()
    before, last = 0, ""
    for size, arm in zip(study.sizes, study.baseline, strict=True):
        count = planned[arm].model_flops if arm in planned else None
        if count is not None and count <= before:
            words = f"it takes no more FLOPs than `{last}` before it; order the sizes by FLOPs"
            yield ("ablate", "sizes", size), words
        before, last = count or before, size
    for part in study.parts:
        at = ("ablate", "hold_one_out" if part.held_out else "add_one", part.name)
        same = [
            size
            for size, one, other in zip(study.sizes, part.arms, study.baseline, strict=True)
            if one in arms and other in arms and arms[one] == arms[other]
        ]
        if same:
            whole = "" if len(same) == len(study.sizes) else f" of the size `{same[0]}`"
            words = f"it changes nothing{whole}: the baseline has these settings already"
            yield at, f"{words}; write what differs, or take it out"


def _known(layers: Sequence[Layer]) -> tuple[ModelConfig | None, int]:
    """The model and the batch of these layers; None if they have problems."""
    found = completed(layers)
    batch = found["train"].get("train_batch_size")
    if found["own"].get("model") or type(batch) is not int or batch < 1:
        return None, 1
    found["train"]["num_train_steps"] = 1  # a recipe's shape does not depend on it
    try:
        return ModelConfig.model_validate(recipes.filled(found)["model"]), batch
    except ValidationError:
        return None, 1


def _arm(part: str, name: str, size: str) -> str:
    return f"{'no-' if part == 'hold_one_out' else ''}{name}-{size}"


def _of_budget(size: str, budget: float) -> str:
    """`small-25e11`, as a name may have no dot."""
    mantissa, _, exponent = f"{budget:.3e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0")
    return f"{size}-{digits}e{int(exponent) - len(digits) + 1}"


def _misnamed(mine: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Why these arms cannot be called so."""
    for name in mine:
        if len(name) > MAX_NAME:
            words = f"its arm would be called `{name}`, and {MAX_NAME} characters are the"
            yield f"{words} most; shorten it or the names of the sizes"
            return
        if name in others:
            yield f"its arm would be called `{name}`, as another one is; rename it"
            return
