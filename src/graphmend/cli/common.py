"""What the commands share: common options, numbers, where results may be written, and how a problem is reported."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from typer.core import TyperCommand

from graphmend.errors import GraphMendError, printable, require

if TYPE_CHECKING:
    from graphmend.workers.local import Workers

GATE = "gate"
"""The adapter that chooses among the others, and the one that acts unless another is named."""


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[float | None], float | None]:
    """A check of the value of an option: a finite number from ``low`` to ``high``; the message names the value."""

    def checked(value: float | None) -> float | None:
        if value is None or (math.isfinite(value) and low <= value <= high):
            return value
        least = "" if low == -math.inf else f" of at least {low}"
        most = "" if high == math.inf else f"{' and' if least else ' of'} at most {high}"
        raise typer.BadParameter(f"{value} is not a finite number{least}{most}.")

    return checked


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", callback=number(0, 2**63 - 1), metavar="NUMBER")]
Device = Annotated[str, typer.Option(help="'cpu', 'cuda' or 'cuda:1'.", metavar="NAME")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no messages.")]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Say on standard error what is decided; twice (-vv), why as well.",
        metavar="",
    ),
]

Model = Annotated[Path | None, typer.Option(help="Checkpoint written by 'graphmend train'.", metavar="FILE")]
Factory = Annotated[
    str | None,
    typer.Option(
        help="Function without arguments that builds your own model, as package.module:function; needs --weights. The"
        " current folder is searched first.",
        metavar="FUNCTION",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="The state_dict of your own model as safetensors, or as torch.save wrote it: .pt, .pth, .ckpt or .bin.",
        metavar="FILE",
    ),
]

Output = Annotated[
    str | None,
    typer.Option(
        help="Which part of what the model returns has the scores, where it returns several: a name, such as logits, or"
        " a position, such as 0.",
        metavar="PART",
    ),
]

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder to look in first; then the folder that GRAPHMEND_DATA names, and the cache.",
        show_default=False,
        metavar="FOLDER",
    ),
]

Jobs = Annotated[
    int | None,
    typer.Option(
        help="How many processes work at the same time; -1 for all cores. With --ray and --device cuda, how many share"
        " a GPU.",
        show_default=False,
        metavar="NUMBER",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Use a Ray cluster: its address, such as 10.0.0.1:6379, or 'auto'; without an address, a Ray is started on"
        " this machine. Graph files are one piece of work each, a graph folder is worked on in shards. Only give a"
        " cluster that you trust: whoever runs it can run code here. Needs graphmend[ray].",
        show_default=False,
        metavar="[ADDRESS]",
    ),
]

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a problem into one sentence on standard error.

    The exit code is 2 for a problem that the user can fix, 1 for an unexpected one, and 130 for Ctrl-C.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (
            typer.Exit,
            BrokenPipeError,
        ):  # whoever reads the output has closed it, which is not the command's problem
            raise
        except GraphMendError as error:
            _fail(str(error), 2)
        except KeyboardInterrupt:
            _fail("interrupted; what was already written is whole", 130)
        except MemoryError:
            _fail("out of memory; use a smaller graph or a larger machine", 2)
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            _fail(f"{file}{error.strerror or error}; check the path and the free space", 2)
        except Exception as error:
            if os.environ.get("GRAPHMEND_DEBUG"):
                raise
            _fail(*_unexpected(error))

    return wrapped


def _unexpected(error: Exception) -> tuple[str, int]:
    """The message for an error of torch or of the user's own model, and the exit code."""
    kind, text = type(error).__name__, " ".join(str(error).split())[:300]
    if kind == "OutOfMemoryError":  # torch's, by name because torch may never have been imported
        return f"out of GPU memory ({text}); use a smaller graph or --device cpu", 2
    if "can't allocate memory" in text:
        return f"out of memory ({text}); use a smaller graph or a larger machine", 2
    return f"{kind}: {text or 'no message'}; set GRAPHMEND_DEBUG=1 to see where it comes from", 1


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(code)


class TakesRay(TyperCommand):
    """A command whose option ``--ray`` may have a value: ``auto``, ``local``, or an address, which has a colon."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without an address, ``--ray`` means a Ray on this machine."""
        if "--ray" in args:
            place = args.index("--ray") + 1
            following = args[place] if place < len(args) else ""
            if following not in ("auto", "local") and (":" not in following or following.startswith("-")):
                args = [*args[:place], "local", *args[place:]]
        return super().parse_args(ctx, args)


def workers_of(jobs: int | None, ray: str | None, device: str) -> Workers:
    """The workers that the options ask for."""
    from graphmend.workers.local import Local
    from graphmend.workers.ray_cluster import Ray

    if ray is None:
        return Local(1 if jobs is None else jobs)
    return Ray(ray, None if jobs == -1 else jobs, device)


def check_no_clash(targets: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise if a file to be written is one of the inputs, or is written more than once.

    Args:
        targets: All files that one call will write.
        inputs: All files that it reads.
    """
    read = {os.path.realpath(path): f"overwrite {path}, which is read" for path in inputs}
    folders = {str(folder): problem for path, problem in read.items() for folder in Path(path).parents}
    taken = dict(read)
    for target in targets:
        place = os.path.realpath(target)  # Path.resolve raises for a loop of links
        problem = taken.get(place) or folders.get(place)  # a folder is replaced with all that is in it
        require(problem is None, f"the result {target} would {problem}; rename a file or choose another --out")
        taken[place] = "be written twice in this call"


def name_of(graph: Path) -> str:
    """What results about a graph are called: the name of its folder, or that of its file without the ending."""
    return os.path.basename(os.path.abspath(graph)) if graph.is_dir() else graph.stem  # noqa: PTH100, PTH119


Task = Annotated[
    str | None,
    typer.Option(
        help="What the model's rows are, where that cannot be told: classes, labels, numbers or embedding.",
        metavar="NAME",
    ),
]


def part_of_output(text: str | None) -> str | int | None:
    """The value of ``--output``: a position if it is a whole number, otherwise a name."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,4}", text) else text
