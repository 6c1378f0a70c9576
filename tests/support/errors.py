"""Which error was raised, by its code and its subject: messages may be reworded."""

from __future__ import annotations

from dataclasses import dataclass

from click.testing import Result

from costopt.domain.errors import CostoptError


@dataclass(frozen=True)
class HasCode:
    """Whether an error has this code and, if given, this subject."""

    code: str
    subject: str | None = None

    def __call__(self, error: CostoptError) -> bool:
        about = self.subject is None or error.subject == self.subject
        return error.code == self.code and about and bool(error.message)


def has_code(code: str, subject: object = None) -> HasCode:
    """For ``pytest.raises(…, check=has_code("in_use"))``."""
    return HasCode(code, None if subject is None else str(subject))


def failure(result: Result) -> CostoptError:
    """The error that ended a command which CliRunner ran, with its message on stderr."""
    assert isinstance(result.exception, SystemExit), result.output
    error = result.exception.__cause__
    assert isinstance(error, CostoptError), result.output
    assert result.exit_code == error.exit_code
    assert error.message in result.stderr
    assert error.hint is None or error.hint in result.stderr
    return error
