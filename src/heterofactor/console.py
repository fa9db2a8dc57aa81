"""What all commands have in common: errors of the user in one line, and Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

# As shells say that a program was stopped from the keyboard.
INTERRUPTED = 130


class UserError(click.ClickException):
    """An error of the user, in one line.

    Examples
    --------
    >>> from heterofactor.console import UserError
    >>> UserError("a.csv: there is no such file.").exit_code
    2
    """

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message in one line on stderr."""
        click.echo(f"Error: {' '.join(self.format_message().split())}", err=True)


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what the library says about wrong input into errors of one line.

    Parameters
    ----------
    command : callable
        Of the command line.

    Examples
    --------
    >>> from heterofactor.console import one_line_errors
    >>> one_line_errors(lambda: None)()
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            click.echo("Stopped by Ctrl-C: there is no fit yet to keep.", err=True)
            sys.exit(INTERRUPTED)
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise UserError(str(error) or type(error).__name__) from error

    return wrapped
