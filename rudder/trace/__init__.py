"""Access traces: what each trainer's minibatches sampled, on disk, written and read as a stream."""

from rudder.trace.format import Manifest, RankFacts, TraceRow, seeds_digest
from rudder.trace.reader import Trace
from rudder.trace.writer import TraceWriter, start_trace

__all__ = ["Manifest", "RankFacts", "Trace", "TraceRow", "TraceWriter", "seeds_digest",
           "start_trace"]  # fmt: skip
