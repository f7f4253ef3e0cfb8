"""Access traces: what each trainer's minibatches sampled, on disk, written and read as a stream."""

from rudder.trace.find import find_trace, trace_folder
from rudder.trace.format import Manifest, RankFacts, TraceRow, seeds_digest
from rudder.trace.reader import Trace
from rudder.trace.writer import TraceWriter, check_free, start_partition_trace, start_trace

__all__ = [
    "Manifest", "RankFacts", "Trace", "TraceRow", "TraceWriter", "check_free", "find_trace",
    "seeds_digest", "start_partition_trace", "start_trace",
    "trace_folder",
]  # fmt: skip
