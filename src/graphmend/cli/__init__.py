"""The command line: parse, call, print.

The files of the commands contain their help texts and import neither torch nor anything that does: a command imports
what it needs when it is called, so that help and completion are quick.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphmend.cli.commands import app as app
else:

    def __getattr__(name):
        """``app``, imported when it is first used, so that :func:`main` can answer Ctrl-C from the start."""
        if name != "app":
            raise AttributeError(f"module 'graphmend.cli' has no attribute {name!r}")
        from graphmend.cli.commands import app

        return app


def main() -> None:
    """The ``graphmend`` command."""
    try:
        from graphmend.cli.commands import app

        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a closed stream is None
                stream.reconfigure(errors="backslashreplace")  # for terminals that know ASCII only
        try:
            app(prog_name="graphmend")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except BrokenPipeError:  # whoever reads the output has closed it
        _end(None, 1)
    except OSError as error:
        _end(f"cannot write to standard output: {error.strerror}; free some space", 2)


def _end(message: str | None, code: int) -> None:
    """Exit without trying again to write what standard output did not accept."""
    if message is not None and sys.stderr is not None:
        sys.stderr.write(f"error: {message}\n")
    if code != 130:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
