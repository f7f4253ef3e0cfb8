"""The persistent buffer: features of remote nodes that a trainer keeps over minibatches.

Importing this package imports numpy only; the compiled kernels load with the first buffer, or with
:func:`warm`.
"""

from rudder.buffer.capacity import resolve_capacity
from rudder.buffer.fills import fill_ids, frequent_ids
from rudder.buffer.persistent import PersistentBuffer, Plan
from rudder.buffer.warming import warm

__all__ = ["PersistentBuffer", "Plan", "fill_ids", "frequent_ids", "resolve_capacity", "warm"]
