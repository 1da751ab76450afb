"""How a command reads `bot.setup.settings.Settings`, and how it ends if something is missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from bot.setup.settings import PREFIX, Settings, Unset
from runner.cli.ending import FAILED, stop, stopping
from runner.cli.options import TheJobs, TheStore

OPTIONS = {name: field for name, field in Settings.model_fields.items() if field.description}
SHARED = {"repository", "ray_address", "ray_token_file", "store", "jobs", "github_api", "bot"}
SHARED |= {"cluster", "isolation", "trust_approved_code", "records_branch"}
PORTS: dict[str, Any] = {"min": 0, "max": 65_535}
AS_IN_RUNNER: dict[str, object] = {"store": TheStore, "jobs": TheJobs}


def option(name: str) -> Any:
    """The option for one field, as a parameter's annotation."""
    field = OPTIONS[name]
    spelt = [f"--{name.replace('_', '-')}"] if field.default is False else []  # no --no-…
    variable, limits = f"{PREFIX}{name.upper()}", PORTS if name.endswith("_port") else {}
    return typer.Option(*spelt, envvar=variable, help=field.description, **limits)


def reads(*also: str, **defaults: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass the settings to a command as its first argument, and add their options to its own: the
    common ones, and those in `also`. Settings without an option have their default."""
    taken = [name for name in OPTIONS if name in SHARED.union(also)]

    def made(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**said: Any) -> None:
            command(only(**{name: said.pop(name) for name in taken}), **said)

        _, *own = signature(command).parameters.values()
        options = [_parameter(name, defaults) for name in taken]
        own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
        run.__signature__ = Signature([*options, *own])  # type: ignore[attr-defined]
        return run

    return made


def only(**said: Any) -> Settings:
    """Settings with only these values; secrets as they are."""
    unsaid: dict[str, Any] = {
        name: field.default for name, field in OPTIONS.items() if name not in said
    }
    return Settings(**unsaid, **said)


def _parameter(name: str, defaults: dict[str, object]) -> Parameter:
    field = OPTIONS[name]
    default = Parameter.empty if field.is_required() else defaults.get(name, field.default)
    kind = AS_IN_RUNNER.get(name) or Annotated[field.annotation, option(name)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


@contextmanager
def told(settings: Settings, whom: str, mend: str, *also: type[Exception]) -> Iterator[None]:
    """Turn errors into messages and exit codes: 2 if something is missing (as the errors in `also`
    say) or GitHub refuses `whom` the repository; 1 if GitHub does not answer."""
    from bot.controller.catch_up import AnotherRepository
    from bot.github import Later, Refused, Unusable
    from bot.telemetry.logs import escaped
    from runner.execution.ray_jobs import RayError
    from runner.scheduler.cluster import BadCluster

    missing = (AnotherRepository, BadCluster, RayError, Unset, *also)
    try:
        with stopping(*missing):
            yield
    except Unusable as error:
        stop(f"{escaped(str(error))}.")
    except Later as error:
        stop(f"GitHub at {settings.github_api} cannot be used now: {escaped(str(error))}.", FAILED)
    except Refused as error:
        seen = f"GitHub shows no {settings.repository} to {whom} ({escaped(str(error))})."
        stop(f"{seen} {mend}".strip())
