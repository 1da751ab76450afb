"""A task that an experiment brings for lm_eval: a YAML file of its folder, with lm_eval's own keys
(docs/task_guide.md there). What would run code (`!function`, a class, a metric in a file) is no key
here; its templates run in Jinja's sandbox."""

from pathlib import Path
from typing import Annotated, Any, Literal

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import AfterValidator, Field, ValidationError

from engine.config.schema import Config, refusal
from runner.lib import untrusted_files, yaml_lines
from runner.spec.task_items import BadTask, is_path_below

ENDS = ".yaml"
FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
Files = str | list[str]
ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


METRICS = (
    *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1", "mcc", "bleu"),
    *("brier_score", "likelihood", "perplexity", "word_perplexity", "byte_perplexity"),
    *("bits_per_byte", "chrf", "chrf++", "ter"),
)


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise refusal(
            "no metric is `{metric}`; there are {known}", metric=metric, known=", ".join(METRICS)
        )
    return metric


class Metric(Config):
    """A metric of lm_eval, with what its function takes."""

    metric: Annotated[str, AfterValidator(_known)]
    aggregation: str | None = None
    higher_is_better: bool | None = None
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: tuple[str, ...] = Field(default=(), strict=False)


class OwnTask(Config):
    """The keys of such a file."""

    task: str
    dataset_path: str
    dataset_name: str | None = None
    dataset_kwargs: dict[Literal["data_files"], Files | dict[str, Files]] | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    fewshot_config: dict[Literal["sampler"], Literal["default", "first_n"]] | None = None
    num_fewshot: int | None = Field(default=None, ge=0, le=100)
    output_type: Literal[
        "multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"
    ] = "generate_until"
    doc_to_text: str | int = ""
    doc_to_target: str | int = ""
    doc_to_choice: str | list[str] | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    gen_prefix: str | None = None
    generation_kwargs: dict[str, bool | int | float | str | list[str]] | None = None
    filter_list: list[dict[str, str | list[dict[str, Any]]]] | None = None
    repeats: int = Field(default=1, ge=1, le=64)
    metric_list: list[Metric] = Field(min_length=1)
    tag: str | list[str] | None = None
    metadata: dict[str, Any] | None = None


def read(file: str, folder: Path) -> dict[str, Any]:
    """The task in a file of the experiment's folder, called as the file is. Raises BadTask."""
    try:
        data = untrusted_files.read(folder.resolve() / file, yaml_lines.MOST_BYTES)
        if data is None:
            raise BadTask(f"there is no file {file} in the experiment's folder; add it", "lm_eval")
        found = yaml_lines.read(data.decode(), lambda *_: None)
        value = {"task": "", **found.value, "tag": None, "metadata": None}
        task = OwnTask.model_validate(value | {"task": file.removesuffix(ENDS)})
        said = task.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for key, text in said.items():
            if key.startswith("doc_to_") or key in ("description", "gen_prefix"):
                for one in text if isinstance(text, list) else [text]:
                    ENVIRONMENT.parse(str(one))
    except yaml_lines.BadYaml as error:
        raise BadTask(f"{file}, line {error.line}: {error}", "lm_eval") from error
    except ValidationError as error:
        first = error.errors()[0]
        line = found.line(tuple(first["loc"]))
        field = ".".join(map(str, first["loc"]))
        raise BadTask(f"{file}, line {line}, {field}: {first['msg']}", "lm_eval") from error
    except TemplateError as error:
        raise BadTask(f"{file}, {key}: no template: {error}", "lm_eval") from error
    except (untrusted_files.Refused, UnicodeDecodeError, TypeError) as error:
        raise BadTask(f"{file} is no YAML file of keys: {error}", "lm_eval") from error
    return said


def place(folder: Path, path: str) -> Path | None:
    """The folder of a data set: `owner/name`, or `name` alone."""
    below = (path, path.rpartition("/")[2]) if path and is_path_below(path) else ()
    return next((folder / one for one in below if (folder / one).is_dir()), None)
