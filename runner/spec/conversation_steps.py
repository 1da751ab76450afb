"""The configuration of the step `conversations`. Light."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from engine.config.schema import Config, Count, refusal

Label = Literal["assistant", "tool_call", "observation", "patch", "outcome", "final"]


class Conversations(Config):
    """Turns conversations into tokens, each with a label, to train on what the assistant says."""

    source: str | None = Field(
        default=None,
        pattern=r"\.(jsonl|parquet)$",
        description="in the place of the input `conversations`: a file of the experiment's folder, "
        "with `messages` in each line or row; its last 1/32 is for validation",
    )
    template: Annotated[str, Field(min_length=1, max_length=20_000)] = Field(
        description="chatml, llama3, gemma or mistral, or Jinja as in Hugging Face's tokenizers, "
        "with {% generation %} and {% endgeneration %} around what the assistant says",
    )
    labels: tuple[Label, ...] = Field(
        default=(),
        strict=False,  # YAML gives a list, the field is a tuple
        description="what is distinguished from other words of the assistant, such as [tool_call, "
        "observation, final] in an agent's traces",
    )
    max_tokens: Count = Field(description="of one conversation; at most seq_len of the model")
    longer: Literal["refuse", "drop", "cut"] = Field(
        default="refuse",
        description="what happens to longer conversations; cut keeps their beginning",
    )
    sha256: dict[str, str] = Field(
        default={}, description="of the source's splits; filled in by the plan"
    )

    @field_validator("template")
    @classmethod
    def _marks_what_is_said(cls, template: str) -> str:
        # Jinja is only imported where there is a template.
        from engine.data.chat_template import BadTemplate, check
        from engine.data.chat_templates import TEMPLATES

        if template in TEMPLATES:
            return template
        if "{" not in template:
            words = "there is no template `{name}`; there are {known}, or write Jinja"
            raise refusal(words, name=template[:40], known=", ".join(TEMPLATES))
        try:
            check(template)
        except BadTemplate as error:
            raise refusal("{words}", words=str(error)) from error
        return template
