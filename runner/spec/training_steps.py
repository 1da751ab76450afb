"""The configurations of the steps that train models and score them."""

from typing import Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from engine.config.phases import InputName
from engine.config.schema import (
    Config,
    Count,
    EvalConfig,
    ModelConfig,
    TrainConfig,
    refusal,
)
from engine.config.stages import StagedCompute
from runner.schema.own_model import Options, OwnModel
from runner.spec.conversation_steps import Label
from runner.spec.data_steps import Function
from runner.spec.tuning import Search


class Own(Config):
    """Own functions that replace the lab's, each as module:function of the experiment's folder.
    `runner.worker.models.plugins` says how they are called."""

    model: Function | None = Field(default=None, description="what is trained, and then scored")
    loss: Function | None = Field(default=None, description="what is minimised")
    optimizer: Function | None = Field(default=None, description="how parameters move")
    schedule: Function | None = Field(default=None, description="the learning rate of each step")
    data: Function | None = Field(default=None, description="which tokens a step sees")

    @model_serializer(mode="wrap")
    def _named(self, whole: SerializerFunctionWrapHandler) -> dict[str, str]:
        return {key: value for key, value in whole(self).items() if value is not None}


class Init(Config):
    """How training continues the model that is its input `init`."""

    moments: bool = Field(
        default=False,
        description="continue with the optimizer's moments, too; the step that trained the model "
        "needs `keep_moments: true`",
    )
    schedule: Literal["new", "continue"] = Field(
        default="new",
        description="new: the learning rates and the batches begin at step 1. continue: they are "
        "those of one run of all steps together, of which this step trains the last part",
    )
    steps: Count | None = Field(
        default=None, description="steps of the earlier part of a schedule; filled in by the plan"
    )
    fresh: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="parameters that the input lacks, which are drawn by the seed; filled in by "
        "the plan where it knows both models",
    )


class Trains(Config):
    """What steps that train have in common: the keys of an arm."""

    model: ModelConfig
    train: TrainConfig
    own: Own = Own()
    options: Options = Options()
    compute: StagedCompute = StagedCompute()
    loss_on: tuple[Label, ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda labels: labels is None,  # old plans have no such key
        description="of conversations: the labels whose tokens are trained on; all that the "
        "assistant says if left out",
    )

    @field_validator("own")
    @classmethod
    def _phases_are_heard(cls, own: Own, info: ValidationInfo) -> Own:
        phases = info.data["train"].phases if "train" in info.data else ()
        for key, named in (
            ("schedule", any(phase.schedule for phase in phases)),
            ("data", any(phase.changes_data for phase in phases)),
        ):
            if named and getattr(own, key):
                words = "phases change the {key}, which is own code's here; take one of the two out"
                raise refusal(words, key=key)
        return own

    @field_validator("options")
    @classmethod
    def _somebody_reads_them(cls, options: Options, info: ValidationInfo) -> Options:
        if options.model_extra and info.data.get("own") == Own():
            words = "`options` are for functions of `own`, and the arm `{arm}` names none"
            raise refusal(words, **(info.context or {"arm": "here"}))
        return options


class Train(Trains):
    """Trains a model on a token store."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    tokens: InputName = Field(
        default="tokens",
        exclude_if=lambda name: name == "tokens",  # plans always have it under this name
        description="the input that it trains on from the first step, so that a sweep can give "
        "each arm its own text",
    )
    init: Init | None = Field(
        default=None,
        exclude_if=lambda init: init is None,  # old plans have no such key
        description="with an input `init`: how its model is continued",
    )


class TrainOwn(Train):
    """The same with an own model."""

    model: OwnModel  # type: ignore[assignment]  # no kind of ModelConfig


class Tune(Trains):
    """Searches for the settings of an arm. Each trial trains to the end and is scored."""

    search: Search
    eval: EvalConfig = Field(default=EvalConfig(), description="what each trial is scored on")

    @field_validator("search")
    @classmethod
    def _fits(cls, search: Search, info: ValidationInfo) -> Search:
        train = info.data.get("train")
        if isinstance(train, TrainConfig) and (why := search.misfit(train)):
            raise refusal("{why}", why=why)
        return search


class TuneOwn(Tune):
    """The same with an own model."""

    model: OwnModel  # type: ignore[assignment]  # no kind of ModelConfig


class Evaluate(EvalConfig):
    """Scores trained models: bits per byte on the validation tokens."""
