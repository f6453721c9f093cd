"""Options for work on many things at once: several processes, or a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from graphmend.workers.local import Workers

LOCAL = "local"

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
        " this machine. Needs graphmend[ray].",
        show_default=False,
        metavar="[ADDRESS]",
    ),
]


class TakesRay(TyperCommand):
    """A command whose option ``--ray`` may have a value: ``auto``, ``local``, or an address, which has a colon."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the address in that is meant when there is none."""
        if "--ray" in args:
            place = args.index("--ray") + 1
            following = args[place] if place < len(args) else ""
            if following not in ("auto", LOCAL) and (":" not in following or following.startswith("-")):
                args = [*args[:place], LOCAL, *args[place:]]
        return super().parse_args(ctx, args)


def workers_of(jobs: int | None, ray: str | None, device: str) -> Workers:
    """Those who work, as the options say."""
    from graphmend.workers.local import Local
    from graphmend.workers.ray_cluster import Ray

    if ray is None:
        return Local(1 if jobs is None else jobs)
    return Ray(ray, None if jobs == -1 else jobs, device)
