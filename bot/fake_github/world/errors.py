"""The sandbox's errors: a status and GitHub's error format."""

from __future__ import annotations


class Refused(Exception):
    def __init__(
        self, status: int, message: str, errors: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors

    def as_json(self) -> dict[str, object]:
        told = {"documentation_url": "https://docs.github.com/rest", "status": str(self.status)}
        return {"message": self.message, **told} | ({"errors": self.errors} if self.errors else {})


class Redirect(Refused):
    """The address has changed; `path` is below the API's URL."""

    def __init__(self, path: str) -> None:
        super().__init__(301, "Moved Permanently")
        self.path = path


def not_found(message: str = "Not Found") -> Refused:
    return Refused(404, message)


def forbidden(message: str) -> Refused:
    return Refused(403, message)


def invalid(resource: str, field: str, code: str, message: str = "") -> Refused:
    """422 "Validation Failed" with the field, as GitHub does."""
    error = {"resource": resource, "field": field, "code": code}
    return Refused(422, "Validation Failed", [error | ({"message": message} if message else {})])


def unprocessable(message: str) -> Refused:
    """422 with a sentence, as the git database answers."""
    return Refused(422, message)
