"""How a model is trained: the keys of `train` in a declaration."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.config.fields import Config, Count, Span, divisors, listed, refusal, span_steps
from engine.config.phases import SCHEDULE, BatchSizes, Phase, filled_in

ONE_RATE = ("adamw", "nadamw", "adamc", "lion")  # optimizers that move everything alike
HYPERBALL = ("adamh", "muonh")  # those that keep norms
DECAY = 0.2  # of wsd, by default
GUARD_WINDOW = 64  # how many good steps define what a spike is
MAX_SNAPSHOTS = 64  # of a run


def snapshots(every: int | None, steps: int) -> range:
    """The steps of a run of so many after which `evaluate_every` keeps its parameters."""
    return range(every, steps, every) if every else range(0)


class TrainConfig(Config):
    """How the model is trained: batch, length, schedule, optimizer, guards and checkpoints."""

    train_batch_size: Count = Field(description="windows in a step")
    gradient_accumulation_steps: Count = Field(
        default=1, description="parts that a step's batch is worked through in, one after the other"
    )
    num_train_steps: Count = Field(description="optimizer steps")
    skip_batches: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda skipped: not skipped,  # old records have no such key
        description="batches that are passed over. A run that continues a model on the same tokens "
        "writes that model's num_train_steps here, to see other batches",
    )
    recipe: Literal["delphi", "marin-moe", "marin-8b", "marin-32b"] | None = Field(
        default=None,
        exclude=True,
        description="what fills in the keys that are left out, here and in `model`, from "
        "hidden_dim, batch and steps: a public run or fit, by its name. `regatta plan --json` "
        "shows all values",
    )
    optimizer: Literal["adamw", "nadamw", "adamc", "lion", "soap", "muon", "adamh", "muonh"] = (
        Field(
            default="adamw",
            description="adamw, nadamw (with Nesterov's momentum), adamc (whose decay falls with "
            "the rate) and lion move everything alike; the others move the matrices of the blocks, "
            "and Adam the rest. muon and soap are their authors' formulas, in float32. The h is "
            "for Hyperball: it keeps each matrix's norm",
        )
    )
    learning_rate: float = Field(gt=0, description="the schedule's peak")
    adam_learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        validate_default=True,
        description="the peak for what Adam moves beside another optimizer; learning_rate if left "
        "out",
    )
    lr_schedule: Literal["constant", "linear", "cosine", "wsd"] = Field(
        default="linear",
        description="what follows the warm-up; wsd holds the peak and falls at the end",
    )
    min_lr_ratio: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        exclude_if=lambda ratio: ratio is None,  # old records have no such key
        description="what the schedule falls towards, as a fraction of the peak; 0 if left out",
    )
    warmup: Span = Field(
        default=0.0, description="steps, or (with a decimal point) fraction of steps, spent rising"
    )
    cycle: Count | None = Field(
        default=None,
        exclude_if=lambda steps: steps is None,  # old records have no such key
        description="wsd only: the rate falls at the end of every so many steps, and is back at "
        "the peak in the next one (WSD-S). The first cycle also has the steps that are left over. "
        "If left out, the rate falls once, at the end of the run",
    )
    decay: Span = Field(
        default=None,
        validate_default=True,
        description="wsd only: steps, or fraction of steps, spent falling at the end of the run, "
        "or of each cycle; 0.2 if left out",
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        default=None,
        validate_default=True,
        description="decoupled, on every weight but gains (of norms, gates of heads, "
        "convolutions); 0.1 if left out, and 0 for adamh and muonh, which keep norms",
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        validate_default=True,
        description="of muon and muonh; 0.95 if left out",
    )
    newton_schulz: Literal["simple", "quintic"] = Field(
        default="simple",
        exclude_if=lambda name: name == "simple",  # old records have no such key
        description="coefficients of the five steps that make muon's and muonh's direction "
        "orthogonal: simple (Jordan's, the same in each step) or quintic (one set a step, as in "
        "Levanter and NVIDIA's Emerging-Optimizers)",
    )
    # Beyond these bounds float32 rounds a beta to 1 and epsilon to 0.
    beta1: float = Field(default=0.9, ge=0, le=0.999_999, description="decay of Adam's mean")
    beta2: float = Field(default=0.95, ge=0, le=0.999_999, description="decay of Adam's variance")
    epsilon: float = Field(default=1e-8, ge=1e-30, description="added to Adam's root")
    max_grad_norm: float = Field(
        default=1.0, gt=0, description="gradients with a larger global norm are scaled down to it"
    )
    max_update_sigma: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        exclude_if=lambda sigma: sigma is None,  # old records have no such key
        description="an update whose norm is more than so many standard deviations above the mean "
        "of the last 64 good steps, once there are so many, is scaled down to that",
    )
    z_loss_weight: float = Field(
        default=0.0, ge=0, description="weight of the squared logsumexp of the logits in the loss"
    )
    ema_decay: Annotated[float, Field(gt=0, le=0.999_999)] | None = Field(
        default=None,
        description="keep a running average of the parameters, which is then what is scored",
    )
    on_bad_step: Literal["stop", "skip"] = Field(
        default="stop",
        description="what a loss or gradient norm that is not finite, or a spike, does to the run",
    )
    spike_sigma: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="a loss or gradient norm so many standard deviations above the mean of the "
        "last 64 good steps, once there are so many, is a spike",
    )
    checkpoint_every: Count = Field(
        default=None,
        validate_default=True,
        description="steps between checkpoints; a tenth of the run, at least 1, if left out",
    )
    checkpoint_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="a checkpoint is also made when the last one is so old"
    )
    keep_checkpoints: Count = Field(default=2, description="newest checkpoints that stay")
    keep_every: Count | None = Field(
        default=None, description="checkpoints of its multiples stay too"
    )
    keep_moments: bool = Field(
        default=False,
        exclude_if=lambda kept: not kept,  # old records have no such key
        description="also write the optimizer's moments, so that a later run can continue with "
        "them; they take twice the room of the parameters",
    )
    evaluate_every: Count | None = Field(
        default=None,
        exclude_if=lambda every: every is None,  # old records have no such key
        description="also keep a snapshot of the parameters every so many steps, at most 64 in a "
        "run. `evaluate` scores them, too, which gives the validation curve",
    )
    phases: tuple[Phase, ...] = Field(
        default=(),
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda phases: not phases,  # old records have no such key
        description="what the run changes on its way, in order",
    )

    @field_validator("gradient_accumulation_steps")
    @classmethod
    def _parts_are_equal(cls, parts: int, info: ValidationInfo) -> int:
        batch = info.data.get("train_batch_size")
        if batch is not None and batch % parts:
            raise refusal(
                f"gradient_accumulation_steps {parts} does not divide train_batch_size {batch}; "
                f"choose one of {listed(divisors(batch))}"
            )
        return parts

    @field_validator("adam_learning_rate")
    @classmethod
    def _adam_beside_another(cls, rate: float | None, info: ValidationInfo) -> float | None:
        if (name := info.data.get("optimizer")) in ONE_RATE:
            if rate is not None:
                raise refusal(
                    "adam_learning_rate goes with optimizer soap, muon, adamh and muonh, and "
                    f"{name} has one rate for everything; remove it, or name another optimizer"
                )
            return None
        return info.data.get("learning_rate") if rate is None else rate

    @field_validator("weight_decay", mode="before")
    @classmethod
    def _spheres_do_not_decay(cls, decay: Any, info: ValidationInfo) -> Any:
        keeps_norms = info.data.get("optimizer") in HYPERBALL
        if decay is None:
            return 0.0 if keeps_norms else 0.1
        if keeps_norms and decay != 0:
            raise refusal(
                f"weight_decay {decay} does nothing under optimizer {info.data['optimizer']}, "
                "which keeps the norm of each matrix; remove it or write 0"
            )
        return decay

    @field_validator("momentum", "newton_schulz")
    @classmethod
    def _these_are_muons(cls, value: Any, info: ValidationInfo) -> Any:
        field, optimizer = info.field_name, info.data.get("optimizer", "")
        if optimizer in ("muon", "muonh"):
            return 0.95 if value is None else value
        if value not in (None, "simple") and optimizer:
            instead = ", which has beta1" if field == "momentum" else ""
            raise refusal(
                f"{field} {value} goes with optimizer muon and muonh, and optimizer is "
                f"{optimizer}{instead}; remove {field} or name another optimizer"
            )
        return value

    @field_validator("spike_sigma", "max_update_sigma")
    @classmethod
    def _spikes_can_show(cls, sigma: float | None, info: ValidationInfo) -> float | None:
        steps = info.data.get("num_train_steps")
        if sigma is not None and steps is not None and steps <= GUARD_WINDOW:
            raise refusal(
                f"{info.field_name} {sigma} compares with the last {GUARD_WINDOW} good steps, and "
                f"the run has only {steps} steps; remove it or train longer"
            )
        return sigma

    @field_validator("max_update_sigma")
    @classmethod
    def _updates_have_a_length(cls, sigma: float | None, info: ValidationInfo) -> float | None:
        if sigma is not None and (name := info.data.get("optimizer")) in HYPERBALL:
            raise refusal(
                f"max_update_sigma {sigma} has nothing to do under optimizer {name}, which moves "
                "each matrix by a set share of its norm; remove it"
            )
        return sigma

    @field_validator("warmup")
    @classmethod
    def _warmup_ends(cls, warmup: int | float, info: ValidationInfo) -> int | float:
        steps = info.data.get("num_train_steps")
        if steps is not None and span_steps(warmup, steps) >= max(steps, 2):
            raise refusal(f"warmup {warmup} is the whole run of {steps} steps; leave some of it")
        return warmup

    @field_validator("min_lr_ratio")
    @classmethod
    def _something_falls(cls, ratio: float | None, info: ValidationInfo) -> float | None:
        if ratio is not None and info.data.get("lr_schedule") == "constant":
            raise refusal(
                f"min_lr_ratio {ratio} is what a schedule falls towards, and lr_schedule constant "
                "does not fall; remove it, or write linear, cosine or wsd"
            )
        return ratio

    @field_validator("cycle")
    @classmethod
    def _cycles_fit(cls, cycle: int | None, info: ValidationInfo) -> int | None:
        schedule, steps = info.data.get("lr_schedule"), info.data.get("num_train_steps")
        if cycle is None or schedule is None or steps is None:
            return cycle
        if schedule != "wsd":
            raise refusal(
                f"cycle {cycle} goes with lr_schedule wsd only, and lr_schedule is {schedule}; "
                "remove cycle or write lr_schedule: wsd"
            )
        if cycle > steps:
            raise refusal(
                f"cycle {cycle} is longer than the run of {steps} steps; make it shorter, or "
                "remove it"
            )
        return cycle

    @field_validator("decay", mode="wrap")
    @classmethod
    def _decay_fits(cls, decay: Any, check: Any, info: ValidationInfo) -> int | float | None:
        schedule = info.data.get("lr_schedule")
        if decay is None and schedule != "wsd":
            return None
        decay = DECAY if decay is None else check(decay)
        if schedule is not None and schedule != "wsd":
            raise refusal(
                f"decay {decay} goes with lr_schedule wsd only, and lr_schedule is {schedule}; "
                "remove decay or write lr_schedule: wsd"
            )
        warmup, steps = info.data.get("warmup"), info.data.get("num_train_steps")
        if warmup is None or steps is None or "cycle" not in info.data:
            return decay
        cycle = info.data["cycle"] or steps
        may_round_up = isinstance(warmup, float) and isinstance(decay, float)  # both are fractions
        if span_steps(warmup, steps) + span_steps(decay, cycle) > cycle + may_round_up:
            what = "the whole run" if cycle == steps else "a cycle"
            raise refusal(
                f"warmup {warmup} and decay {decay} are more than {what} of {cycle} steps "
                "together; make one of them shorter"
            )
        return decay

    @field_validator("checkpoint_every", mode="before")
    @classmethod
    def _every_tenth(cls, every: Any, info: ValidationInfo) -> Any:
        return max(1, info.data.get("num_train_steps", 1) // 10) if every is None else every

    @field_validator("evaluate_every")
    @classmethod
    def _snapshots_are_few(cls, every: int | None, info: ValidationInfo) -> int | None:
        steps = info.data.get("num_train_steps")
        if every is None or steps is None:
            return every
        if every >= steps:
            raise refusal(
                f"evaluate_every {every} leaves no step to score before the last one, as the run "
                f"has {steps} steps; make it smaller, or remove it"
            )
        if (count := len(snapshots(every, steps))) > MAX_SNAPSHOTS:
            raise refusal(
                f"evaluate_every {every} keeps {count:,} snapshots of a run of {steps:,} steps, "
                f"and {MAX_SNAPSHOTS} is the most; write at least "
                f"{(steps - 1) // (MAX_SNAPSHOTS + 1) + 1}"
            )
        return every

    @field_validator("phases")
    @classmethod
    def _phases_fit(cls, phases: tuple[Phase, ...], info: ValidationInfo) -> tuple[Phase, ...]:
        if not {"num_train_steps", "optimizer", *SCHEDULE} <= info.data.keys():
            return phases  # that problem is already reported
        return filled_in(phases, info.data, cls.model_validate)

    @model_validator(mode="after")
    def _recipe_has_done_its_work(self) -> "TrainConfig":
        object.__setattr__(self, "recipe", None)
        return self

    @property
    def batch_sizes(self) -> BatchSizes:
        """The windows in each step."""
        return BatchSizes.of(dict(self))

    @property
    def snapshots(self) -> range:
        """The steps after which the parameters are kept; not the last one, which is the output."""
        return snapshots(self.evaluate_every, self.num_train_steps)

    def schedules(self) -> tuple[tuple[int, "TrainConfig"], ...]:
        """The schedules, in order: how many steps are finished before each, and a configuration
        without phases that has the schedule and its number of steps."""
        starts = [0, *(phase.at for phase in self.phases if phase.schedule)]
        named = [{}, *(phase.schedule for phase in self.phases if phase.schedule)]
        ends = [*starts[1:], self.num_train_steps]
        return tuple(
            (start, self.model_copy(update=new | {"num_train_steps": end - start, "phases": ()}))
            for start, end, new in zip(starts, ends, named, strict=True)
        )
