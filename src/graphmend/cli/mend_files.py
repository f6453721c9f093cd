"""What 'graphmend mend' writes to the disk about each graph, and whether it is there already."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmend.cli.common import name_of
from graphmend.cli.mend_pages import Facts, write_page_of
from graphmend.errors import GraphMendError
from graphmend.files.array_folders import check_replaceable, replace_folder
from graphmend.files.digest import is_sealed, sealed
from graphmend.files.files import check_target, read_json, write_arrays, write_text
from graphmend.files.graph_files import save_graph
from graphmend.results.adaptation import Adaptation
from graphmend.results.patch_file import NOTE as PATCH_NOTE
from graphmend.shards.folder import NOTE as GRAPH_NOTE
from graphmend.shards.saving import save_folder

if TYPE_CHECKING:
    from graphmend.cli.mend_run import Job

__all__ = ["ResultFiles", "stored_report", "write_results"]


@dataclass(frozen=True)
class ResultFiles:
    """Where the results of mending a graph lie; a graph folder has its mended graph and its patch as folders, too.

    Args:
        graph: The mended graph.
        predictions: The model's outputs on it.
        patch: The change.
        page: The page about it, if there is one.
        report: The report, which is written last.
        kept: Where results of shards are kept until the report is written; only for a graph folder.
    """

    graph: Path
    predictions: Path
    patch: Path
    page: Path | None
    report: Path
    kept: Path | None

    @classmethod
    def of(cls, graph: Path, out: Path, page: bool) -> ResultFiles:
        """The results of a graph in the folder ``out``."""
        name, is_folder = name_of(graph), graph.is_dir()
        return cls(
            graph=out / (name if is_folder else f"{name}.npz"),
            predictions=out / f"{name}.predictions.npz",
            patch=out / f"{name}.patch{'' if is_folder else '.safetensors'}",
            page=out / f"{name}.html" if page else None,
            report=out / f"{name}.json",
            kept=out / f".{name}.graphmend-kept" if is_folder else None,
        )

    def into(self, out: Path) -> ResultFiles:
        """The same in another folder, as a worker on another machine has it."""
        paths: dict[str, Any] = {name: path and out / path.name for name, path in vars(self).items()}
        return replace(self, **paths)

    @property
    def parts(self) -> list[Path]:
        """All but the report, in the order in which they are written."""
        return [self.graph, self.predictions, self.patch, *([] if self.page is None else [self.page])]

    def check(self) -> None:
        """Raise, before any work is done, unless everything can be written or replaced."""
        folders = {} if self.kept is None else {self.graph: GRAPH_NOTE, self.patch: PATCH_NOTE}
        for target in [*self.parts, self.report]:
            if target in folders:
                check_replaceable(target, folders[target])
            else:
                check_target(target)

    def remove_kept(self) -> None:
        """Remove the results of shards that were kept for a run after a crash."""
        if self.kept is not None:
            shutil.rmtree(self.kept, ignore_errors=True)


def write_results(
    job: Job, result: Adaptation, more: dict[str, Any], files: ResultFiles, facts: Facts | None
) -> dict[str, Any]:
    """Write graph, predictions, patch and page, and last the report, which is returned."""
    if files.kept is None:
        save_graph(files.graph, result.data)
    else:
        replace_folder(files.graph, lambda folder: save_folder(result.data, folder))
    arrays = {"logits": result.logits.cpu().numpy()}
    if result.task.predicts:
        arrays["prediction"] = result.predictions.cpu().numpy()
    write_arrays(files.predictions, arrays)
    if files.kept is None:
        result.patch.save(files.patch)
    else:
        replace_folder(files.patch, result.patch.save_folder)
    if files.page is not None:
        write_page_of(files.page, facts)
    report = {
        "fingerprint": result.patch.before,
        **job.record,
        **result.summary(),
        "history": [asdict(step) for step in result.history],
        "candidates": [asdict(candidate) for candidate in result.candidates],
        **more,
    }
    if job.tested is not None:
        report["test"] = {"before": job.before, **job.tested.scores_if_possible(result.logits, job.data)}
    report = sealed(report, files.parts)
    write_text(files.report, json.dumps(report, indent=2) + "\n")
    files.remove_kept()
    return report


def stored_report(job: Job, files: ResultFiles) -> dict[str, Any] | None:
    """The stored report of the very same work, if it and all that belongs to it is there as it was written."""
    try:
        stored = read_json(files.report)
    except GraphMendError:
        return None
    expected = json.loads(json.dumps(job.record))
    same = isinstance(stored, dict) and all(stored.get(key) == value for key, value in expected.items())
    is_done = same and stored.get("fingerprint") == job.fingerprint and is_sealed(stored, files.parts)
    return stored if is_done else None
