"""Preregistrations: who asked, what they predicted, and the seal."""

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from runner.lib.base_record import Instant, Record, Sha256
from runner.schema import prediction_forms
from runner.schema.metrics import Metric
from runner.schema.record.fields import since


class Person(Record):
    """A user of GitHub. The id stays when the login changes."""

    login: str
    id: int


class Agent(Person):
    """A program's account, or a GitHub App, that the policy named; it proposes and approves
    nothing."""

    sponsor: str  # login of the person who answers for it


PREFIX = "Experiment: "  # of a title, as the issue form once had it

_Arms = Annotated[tuple[str, ...], Field(max_length=prediction_forms.MOST_ARMS)]


class Prediction(Record):
    """A prediction that a machine can check: the estimate is in the set that `expect` names. Its
    keys select one of the forms in `runner.schema.prediction_forms`."""

    metric: Metric
    arm: str | None = since(None)
    versus: str | None = None
    order: _Arms = since(())
    exponent: _Arms = since(())
    smaller: _Arms = since(())
    axis: prediction_forms.Axis | None = since(None)
    expect: str  # "< b", "<= b", "> b", ">= b" or "a ± b"
    confidence: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _of_a_form(self) -> "Prediction":
        for key, words in prediction_forms.wrong(self):
            raise PydanticCustomError("form", "{words}", {"key": key, "words": words})
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that it is about."""
        alone = tuple(name for name in (self.arm, self.versus) if name is not None)
        return (*alone, *self.order, *self.exponent, *self.smaller)

    @property
    def sentence(self) -> str:
        """The prediction as a sentence."""
        return "".join(text for _, text in prediction_forms.parts(self))


class Preregistration(Record):
    """The seal: what was predicted, by whom, before anything ran."""

    repository: int
    issue: int
    title: str
    hypothesis: str
    predictions: tuple[Prediction, ...]
    author: Person
    at: Instant  # when it was sealed, by GitHub's clock
    text_sha256: Sha256  # of the issue's title and body when it was sealed
    text: str | None = since(None)  # that text: the title, a line break, the body

    @property
    def seal(self) -> str:
        """SHA-256 of the canonical form, author and time included."""
        return self.digest()

    @property
    def called(self) -> str:
        """Its title without the prefix that the issue form once gave."""
        title = self.title.removeprefix(PREFIX).strip()
        if title in ("", self.title):
            return self.title
        return title[0].upper() + title[1:]


class Edit(Record):
    """An edit of a sealed issue. The seal does not change; the edit is shown beside it."""

    at: Instant
    text_sha256: Sha256
    text: str | None = since(None)  # the title, a line break, the body
