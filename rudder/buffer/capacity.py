"""How many rows a buffer has."""

from __future__ import annotations

from rudder.errors import CapacityError


def resolve_capacity(buffer: float | int, halo_nodes: int, remote_nodes: int) -> int:
    """Rows of a buffer: a share of the halo nodes (float, rounded) or a count (int).

    Args:
        buffer: a float in 0..1, or an int of 0 or more.
        halo_nodes: remote nodes one hop from the partition.
        remote_nodes: nodes of the graph that other partitions own.

    Raises:
        CapacityError: out of range, or above the remote nodes.
    """
    if isinstance(buffer, bool) or not isinstance(buffer, int | float):
        raise CapacityError(f"buffer = {buffer!r} must be a share such as 0.25 or a count of rows")
    if buffer < 0 or (isinstance(buffer, float) and not buffer <= 1):
        raise CapacityError(
            f"buffer = {buffer!r}: a share lies in 0..1, a count of rows is 0 or more and has no "
            "point"
        )
    rows = round(buffer * halo_nodes) if isinstance(buffer, float) else buffer
    if rows > remote_nodes:
        raise CapacityError(
            f"a buffer of {rows} rows (buffer = {buffer!r}) is more than the {remote_nodes} remote "
            f"nodes that this partition could ever fetch; at most {remote_nodes}"
        )
    return rows
