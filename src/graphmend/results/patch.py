"""The reversible change of a graph."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.memory import empty_like
from graphmend.errors import GraphMendError, require
from graphmend.graph.checks import check_structure, is_finite
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_lists import edge_bounds, edge_sequences, is_per_graph, merged, regroup, removed_entries
from graphmend.graph.edits import attributes_of_added, edge_attributes, with_edge_changes, with_edges_last
from graphmend.graph.mapped import MappedGraph, on_disk
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.patch_file import as_json, check_parts, read_patch, with_prefix, write_patch, write_patch_folder
from graphmend.results.tables import html_table
from graphmend.scratch import ROWS, large_empty, row_ranges

__all__ = ["Patch", "as_bits", "rebase"]

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Patch:
    """What was changed, so that it can be done again and taken back, both bit for bit.

    Feature rows are kept as the exclusive or of their bits before and after: one array that leads from either state to
    the other, whereas adding and subtracting floats would round. Changed edge weights are kept in the same way; a graph
    that had none gets them as a new attribute, and loses it again. Of removed edges, positions and attributes are kept;
    added edges are at the end of the list.

    Args:
        before: Fingerprint of the graph the patch belongs to.
        nodes: Its number of nodes.
        edges: Its number of stored edge entries.
        rows: Changed feature rows.
        bits: Exclusive or of those rows' bits.
        removed: Positions of the removed edges, ascending.
        removed_attributes: ``edge_index`` (transposed) and every edge-level attribute of the removed edges.
        added_attributes: The same of the added edges.
        weight_bits: Exclusive or of the bits of ``edge_weight`` of the edges that stay, if one of them changes.
        new_weights: The ``edge_weight`` of the mended graph, if the original has none.
        removed_sequences: The entries for removed edges of lists and NumPy arrays with one entry per edge.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> result = graphmend.mend(model, data, graphmend.GTrans(steps=3))
        >>> result.patch.save("wine.patch.safetensors")
        >>> patch = graphmend.Patch.load("wine.patch.safetensors")
        >>> torch.equal(patch.apply(data).x, result.data.x), torch.equal(patch.revert(result.data).x, data.x)
        (True, True)
    """

    before: str
    nodes: int
    edges: int
    rows: Tensor
    bits: Tensor
    removed: Tensor
    removed_attributes: dict[str, Tensor] = field(default_factory=dict)
    added_attributes: dict[str, Tensor] = field(default_factory=dict)
    weight_bits: Tensor | None = None
    new_weights: Tensor | None = None
    removed_sequences: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        data: Data,
        x: Tensor | None = None,
        removed: Tensor | None = None,
        added: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        before: str | None = None,
    ) -> tuple[Patch, Data]:
        """The patch that changes a graph, and the mended graph.

        Args:
            data: The graph.
            x: The new features, which the mended graph takes over; ``None`` if they stay.
            removed: Positions of the edges to remove, ascending; ``None`` for no edge.
            added: Edges to add, ``(2, m)``; ``None`` for no edge.
            edge_weight: New weights, one per edge of the mended graph: the remaining edges, then the added ones.
            before: The fingerprint of the graph, if it is known.
        """
        none = data.edge_index[:, :0]
        removed, added = none[0] if removed is None else removed, none if added is None else added
        rows, bits = _changed_rows(data.x, x)
        attributes, new = edge_attributes(data), attributes_of_added(data, added)
        weight_bits, new_weights, stays = None, None, _stays(data, removed)
        if edge_weight is not None:
            total = int(stays.sum()) + added.size(1)
            require(
                tuple(edge_weight.shape) == (total,),
                f"edge_weight has shape {tuple(edge_weight.shape)}, but the mended graph {total} edges",
            )
            if data.get("edge_weight") is None:
                new_weights = edge_weight.detach().clone()
            else:
                weights = edge_weight.detach().to(data.edge_weight.dtype)
                old, new["edge_weight"] = weights[: total - added.size(1)], weights[total - added.size(1) :]
                weight_bits = _changed_bits(data.edge_weight[stays], old)
        patch = cls(
            before=fingerprint_of(data) if before is None else before,
            nodes=data.x.size(0),
            edges=stays.numel(),
            rows=rows,
            bits=bits,
            removed=removed,
            removed_attributes={name: value.index_select(0, removed) for name, value in attributes.items()},
            added_attributes=new,
            weight_bits=weight_bits,
            new_weights=new_weights,
            removed_sequences={
                name: removed_entries(value, ~stays.cpu().numpy(), bounds)
                for name, (value, bounds) in edge_sequences(data).items()
            },
        )
        is_mapped = (
            isinstance(data, MappedGraph) and data.is_large
        )  # otherwise a copy would take as much memory as the graph
        same = data.x if is_mapped or x is not None else data.x.clone()
        return patch, patch._apply(data, same if x is None else x.detach())

    def apply(self, data: Data) -> Data:
        """The mended graph; ``data`` must be the graph the patch was made for and is left as it was."""
        with on_disk(data):
            return self._applied_checked(data)

    def _applied_checked(self, data: Data) -> Data:
        data = with_edge_index(data)
        otherwise = "was made for another graph; apply it to the graph it came from"
        self._require_graph(data, otherwise)
        _require_same(fingerprint_of(data), self.before, otherwise)
        require(self._fits_original(data), f"this patch (graph {self.before[:12]}) {otherwise}")
        out = self.applied(data)
        for name in ("x", "edge_weight"):
            numbers = out.get(name)
            is_sound = numbers is None or numbers.numel() == 0 or is_finite(numbers) or not is_finite(data[name])
            require(is_sound, f"this patch is damaged: with it {name} is not finite; mend again")
        return out

    def revert(self, data: Data) -> Data:
        """The original graph, bit for bit; ``data`` must be the mended graph and is left as it was."""
        with on_disk(data):
            return self._reverted(data)

    def _reverted(self, data: Data) -> Data:
        otherwise = "did not make this graph; revert it on the graph that apply returned"
        self._require_graph(data, otherwise)
        if isinstance(data, MappedGraph) and self.num_added:
            data = with_edges_last(data, self.added_edges())  # a folder has them where their targets are
        require(self._fits(data), f"this patch (graph {self.before[:12]}) {otherwise}")
        out = copy.copy(data)
        out.x = self._flip(data.x)
        kept = data.edge_index.size(1) - self.num_added
        removed = self.removed.to(data.x.device)
        old = torch.ones(kept + self.num_removed, dtype=torch.bool, device=data.x.device)
        old[removed] = False
        for name, value in edge_attributes(self._with_flipped_weights(data), self.removed_attributes).items():
            if name == "edge_index":
                ends = zip(data.edge_index, self.removed_attributes[name].t(), strict=True)
                full = large_empty((2, old.numel()), data.edge_index)
                for row, (end, gone) in zip(full, ends, strict=True):
                    _put_back(row, old, end[:kept], removed, gone)
                out.edge_index = full
            else:
                full = large_empty((old.numel(), *value.shape[1:]), value)
                _put_back(full, old, value[:kept], removed, self.removed_attributes[name])
                out[name] = full
        if self.new_weights is not None:
            del out.edge_weight
        regroup(out, {*self.removed_attributes, "edge_weight"})
        _require_same(fingerprint_of(out, self.removed_attributes), self.before, otherwise)
        self._put_sequences_back(out, ~old.cpu().numpy(), otherwise)
        return out

    def _require_graph(self, data: Data, otherwise: str) -> None:
        try:
            check_structure(data)
        except GraphMendError as error:
            raise GraphMendError(f"this patch (graph {self.before[:12]}) {otherwise} ({error})") from error

    def _put_sequences_back(self, out: Data, is_removed: Any, otherwise: str) -> None:
        bounds = edge_bounds(out)
        for name, removed in self.removed_sequences.items():
            pieces = bounds.tolist() if bounds is not None and is_per_graph(out, name) else None
            try:
                out[name] = merged(out.get(name), removed, is_removed, pieces)
            except GraphMendError as error:
                raise GraphMendError(f"this patch {otherwise} (in its {name!r} {error})") from error

    def _fits_original(self, data: Data) -> bool:
        """The same for the graph before; the fingerprint alone is no protection from forgery."""
        bits, removed = as_bits(data.x), self.removed.to(data.x.device)
        return (
            (self.nodes, self.edges) == (bits.size(0), data.edge_index.size(1))
            and (bits.dtype, bits.shape[1:]) == (self.bits.dtype, self.bits.shape[1:])
            and _kinds(edge_attributes(data)) == _kinds(self.removed_attributes)
            and torch.equal(data.edge_index[:, removed], self.removed_edges().to(data.x.device))
            and set(edge_sequences(data)) == set(self.removed_sequences)
        )

    def _fits(self, data: Data) -> bool:
        """Whether all positions exist in a graph; the fingerprint shows whether the rest is unchanged."""
        bits, total = as_bits(data.x), data.edge_index.size(1) - self.num_added + self.num_removed
        edges = edge_attributes(data, self.removed_attributes)
        return (
            total >= self.num_removed
            and bool((self.removed < total).all())
            and bool((self.rows < bits.size(0)).all())
            and (bits.dtype, bits.shape[1:]) == (self.bits.dtype, self.bits.shape[1:])
            and all(value.size(0) == data.edge_index.size(1) for value in edges.values())
            and _kinds(edges) == _kinds(self.removed_attributes)
            and self._fit_weights(data, total - self.num_removed)
        )

    def _fit_weights(self, data: Data, kept: int) -> bool:
        weight = data.get("edge_weight")
        if self.new_weights is None:
            return self.weight_bits is None or self.weight_bits.numel() == kept
        new = self.new_weights.to(data.x.device)
        alike = isinstance(weight, Tensor) and (weight.dtype, weight.shape) == (new.dtype, new.shape)
        return alike and torch.equal(as_bits(weight), as_bits(new))

    def applied(self, data: Data) -> Data:
        """The mended graph; the caller has made sure that the patch was made for ``data``."""
        return self._apply(data, self._flip(data.x))

    def _apply(self, data: Data, x: Tensor) -> Data:
        out = self._with_flipped_weights(with_edge_changes(data, self.removed, self.added_attributes))
        out.x = x
        if self.new_weights is not None:
            out.edge_weight = self.new_weights.to(x.device, copy=True)
            regroup(out, {*self.added_attributes, "edge_weight"})
        return out

    def _with_flipped_weights(self, data: Data) -> Data:
        """The weights of the edges that stay, in the other one of their two states."""
        if self.weight_bits is None:
            return data
        out = copy.copy(data)
        out.edge_weight = data.edge_weight.detach().clone()
        as_bits(out.edge_weight)[: self.weight_bits.numel()] ^= self.weight_bits.to(data.x.device)
        return out

    def _flip(self, x: Tensor) -> Tensor:
        out = large_empty(tuple(x.shape), x).copy_(x.detach())
        bits, rows = as_bits(out), self.rows.to(x.device)
        for at in row_ranges(rows.numel(), x.size(1)):
            bits[rows[at]] ^= self.bits[at].to(x.device)
        return out

    @property
    def num_removed(self) -> int:
        """Stored edge entries removed (an undirected edge has two)."""
        return self.removed.numel()

    @property
    def num_added(self) -> int:
        """Stored edge entries added."""
        return self.added_attributes["edge_index"].size(0)

    @property
    def num_rows(self) -> int:
        """Nodes with changed features."""
        return self.rows.numel()

    @property
    def num_weights(self) -> int:
        """Stored edge entries with a changed weight; an edge of a graph without weights has the weight 1."""
        if self.new_weights is not None:
            return int((self.new_weights != 1).sum())
        return 0 if self.weight_bits is None else int((self.weight_bits != 0).sum())

    def summary(self) -> str:
        """One line for people."""
        weights = f", {self.num_weights} edge weights changed" if self.num_weights else ""
        return (
            f"{self.num_rows} feature rows changed, {self.num_removed} edge entries removed, "
            f"{self.num_added} added{weights} (graph {self.before[:12]})"
        )

    def feature_change(self, x: Tensor) -> Tensor:
        """The distance of each row of mended features from what it was, in float64, without missing values."""
        rows = self.rows.to(x.device)
        after = x.detach()[rows]
        before = (as_bits(after) ^ self.bits.to(x.device)).view(x.dtype)
        out = torch.zeros(x.size(0), dtype=torch.float64, device=x.device)
        out[rows] = (after.double() - before.double()).nan_to_num(nan=0.0).norm(dim=1)
        return out

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        changes = (self.num_rows, self.num_removed, self.num_added)
        return not any(changes) and self.weight_bits is None and self.new_weights is None

    def is_like(self, other: Patch) -> bool:
        """Whether it changes features as another patch of the same graph does, and both change nothing else."""
        return (
            all(patch.num_removed == patch.num_added == patch.num_weights == 0 for patch in (self, other))
            and torch.equal(self.rows, other.rows)
            and torch.equal(self.bits, other.bits)
        )

    def __repr__(self) -> str:
        return f"Patch({self.summary()})"

    def _repr_html_(self) -> str:
        counts = {
            "feature rows changed": f"{self.num_rows} of {self.nodes}",
            "edge entries removed": f"{self.num_removed} of {self.edges}",
            "edge entries added": self.num_added,
            "edge weights changed": self.num_weights,
        }
        return html_table("Patch", counts.items(), note=f"for the graph {self.before[:12]}")

    def removed_edges(self) -> Tensor:
        """The removed edges as PyG stores edges, ``(2, K)``: source and target of every entry of the edge list.

        An edge that is stored in both directions, as in an undirected graph, is listed twice, once per direction.
        """
        return self.removed_attributes["edge_index"].t().contiguous()

    def added_edges(self) -> Tensor:
        """The added edges in the same form as :meth:`removed_edges`, ``(2, K)``."""
        return self.added_attributes["edge_index"].t().contiguous()

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors, by name, and the rest, which goes into JSON."""
        tensors = {"rows": self.rows, "bits": self.bits, "removed": self.removed}
        tensors |= {f"removed.{name}": value for name, value in self.removed_attributes.items()}
        tensors |= {f"added.{name}": value for name, value in self.added_attributes.items()}
        weights = {"weight_bits": self.weight_bits, "new_weights": self.new_weights}
        tensors |= {name: value for name, value in weights.items() if value is not None}
        sequences = {name: as_json(name, value) for name, value in self.removed_sequences.items()}
        rest: dict[str, Any] = {"before": self.before, "nodes": self.nodes, "edges": self.edges}
        return tensors, rest | {"sequences": sequences, "summary": self.summary()}

    def save(self, path: str | Path) -> None:
        """Write as safetensors with a JSON header, atomically."""
        write_patch(path, *self.parts())

    def save_folder(self, folder: str | Path) -> None:
        """Write as a folder of arrays, a block at a time, for a large graph; they are mapped when it is read.

        A call that was interrupted continues where it was.
        """
        write_patch_folder(folder, *self.parts())

    @classmethod
    def load(cls, path: str | Path) -> Patch:
        """Read a patch written by :meth:`save` or :meth:`save_folder`; one that could not fit any graph is refused."""
        return cls.of_parts(*read_patch(path), path)

    @classmethod
    def of_parts(cls, tensors: dict[str, Tensor], header: dict[str, Any], path: str | Path) -> Patch:
        """A patch from its :meth:`parts`, which come from a file; one that could not fit any graph is refused."""
        check_parts(tensors, header, path)
        return cls(
            before=header["before"],
            nodes=header["nodes"],
            edges=header["edges"],
            rows=tensors["rows"],
            bits=tensors["bits"],
            removed=tensors["removed"],
            removed_attributes=with_prefix(tensors, "removed."),
            added_attributes=with_prefix(tensors, "added."),
            weight_bits=tensors.get("weight_bits"),
            new_weights=tensors.get("new_weights"),
            removed_sequences=header["sequences"],
        )


def _require_same(actual: str, expected: str, otherwise: str) -> None:
    require(actual == expected, f"this patch (graph {expected[:12]}) {otherwise} (this one is {actual[:12]})")


def as_bits(x: Tensor) -> Tensor:
    """The same memory read as whole numbers."""
    return x.view(_INTEGER[x.element_size()])


def _changed_rows(before: Tensor, after: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rows that changed, and which of their bits."""
    if after is None:
        return torch.empty(0, dtype=torch.long, device=before.device), as_bits(before[:0])
    old, new = as_bits(before), as_bits(after)
    if new.numel() > ROWS and new.device.type == "cpu":
        return _changed_in_blocks(old, new)
    bits = torch.bitwise_xor(old, new, out=empty_like(new))
    rows = ((bits.amin(1) != 0) | (bits.amax(1) != 0)).nonzero().view(-1)  # far faster than any()
    return rows, bits if rows.numel() == before.size(0) else bits.index_select(0, rows)


def _changed_in_blocks(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    blocks = row_ranges(*new.shape)
    rows = torch.cat([(old[at] != new[at]).any(1).nonzero().view(-1) + at.start for at in blocks])
    bits = large_empty((rows.numel(), new.size(1)), new)
    for at in row_ranges(rows.numel(), new.size(1)):
        torch.bitwise_xor(old[rows[at]], new[rows[at]], out=bits[at])
    return rows, bits


def _put_back(out: Tensor, stays: Tensor, kept: Tensor, removed: Tensor, gone: Tensor) -> None:
    """Merge what stayed and what was removed, each at its old position."""
    start = 0
    for at in row_ranges(out.size(0), out[:1].numel()):
        number = int(stays[at].sum())
        out[at][stays[at]] = kept[start : start + number]
        start += number
    out[removed] = gone.to(out.device)


def _stays(data: Data, removed: Tensor) -> Tensor:
    keep = torch.ones(data.edge_index.size(1), dtype=torch.bool, device=data.x.device)
    keep[removed] = False
    return keep


def _changed_bits(before: Tensor, after: Tensor) -> Tensor | None:
    bits = as_bits(before.contiguous()) ^ as_bits(after.contiguous())
    return bits if bool((bits != 0).any()) else None


def _kinds(attributes: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (value.dtype, value.shape[1:]) for name, value in attributes.items()}


def rebase(patch: Patch, cast: Data, original: Data, *, before: str | None = None) -> tuple[Patch, Data]:
    """The same change of a graph in another floating-point type or on another device, and that graph mended.

    A model takes features of its own type, while a file may keep another one. Mend the graph in the model's type, then
    bring the patch back: numbers that did not change keep the bits that they have in ``original``, and the others are
    converted to its type.

    Args:
        patch: The change.
        cast: The graph that it was made for, such as ``original`` with ``x.float()``.
        original: The graph as it was before that; it is left as it was.
        before: The fingerprint of that graph, if ``cast`` has been checked and it has been computed.

    Example:
        >>> import copy
        >>> original = Data(x=torch.rand(3, 2).double(), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> cast = copy.copy(original)
        >>> cast.x = original.x.float()
        >>> patch, _ = Patch.make(cast, cast.x + 1, torch.tensor([0]), cast.edge_index[:, :0])
        >>> patch, mended = rebase(patch, cast, original)
        >>> mended.x.dtype, torch.equal(patch.revert(mended).x, original.x)
        (torch.float64, True)
    """
    device = original.x.device
    same = (
        original.x.shape == cast.x.shape
        and torch.equal(original.edge_index, cast.edge_index.to(device))
        and _are_same(original.x.to(cast.x.dtype), cast.x.to(device))
    )
    require(same, "the patch was made for another graph; give the graph whose features were converted for mending")
    mended = patch.apply(cast) if before is None else patch.applied(cast)
    x = _where_changed(cast.x, mended.x, original.x)
    require(is_finite(x), f"the mended features do not fit into {x.dtype}; mend the graph in {cast.x.dtype}")
    weight = mended.get("edge_weight")
    if weight is not None and original.get("edge_weight") is not None:
        weight = _weights(patch, cast, weight, original.edge_weight)
    weight = None if weight is None else weight.to(device)
    return Patch.make(original, x, patch.removed.to(device), patch.added_edges().to(device), weight, before=before)


def _are_same(first: Tensor, second: Tensor) -> bool:
    """Whether all values are the same, including missing ones (NaN) at the same positions."""
    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def _weights(patch: Patch, cast: Data, weight: Tensor, original: Tensor) -> Tensor:
    """The weights of the edges that stay, each as it was unless it changed, then those of the edges that came."""
    stays = torch.ones(patch.edges, dtype=torch.bool, device=weight.device)
    stays[patch.removed.to(weight.device)] = False
    before, kept = cast.edge_weight[stays], weight[: patch.edges - patch.num_removed]
    old = _where_changed(before, kept, original[stays.to(original.device)])
    return torch.cat([old, weight[kept.numel() :].to(original.device, original.dtype)])


def _where_changed(before: Tensor, after: Tensor, other: Tensor) -> Tensor:
    """``after`` where it differs from ``before``, else ``other``, in the type and on the device of ``other``."""
    changed = as_bits(before.contiguous()) != as_bits(after.contiguous())
    return torch.where(changed.to(other.device), after.to(other.device, other.dtype), other.detach())
