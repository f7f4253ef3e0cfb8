"""One exception class per cause.

Every message says what was found, where, and what to do about it. The command line turns a
:class:`UsageError` into exit code 2 and any other :class:`RudderError` into exit code 1.
"""

from __future__ import annotations

import errno


class RudderError(Exception):
    """Base of every error that Rudder raises on purpose."""


class UsageError(RudderError):
    """What the user asked for cannot be meant: a wrong name, value or combination."""


class SpecError(UsageError):
    """A ``name:key=value`` text or a TOML spec that does not parse or does not fit its target."""


class UnknownNameError(UsageError):
    """A name that its registry does not hold."""


class DuplicateNameError(RudderError):
    """Two registrations of one name in one registry."""


class PluginError(RudderError):
    """A plug-in that cannot be loaded, or whose file changed since the job was made."""


class HomeError(UsageError):
    """A data directory that cannot be made, is not writable, or belongs to another user."""


class ScenarioError(UsageError):
    """A scenario with a value out of range or values that exclude each other."""


class SuiteError(UsageError):
    """A suite whose file names what it must not, or scenarios out of range."""


class LeakError(UsageError):
    """A suite that asks for what a model under test has seen in its training."""


class PairingError(UsageError):
    """A controller and a replacement policy that do not go together."""


class CapacityError(UsageError):
    """A buffer that is larger than what it could ever hold."""


class MissingPathError(UsageError):
    """A path that the user wrote and that does not exist, or is not of the kind it must be."""


class PathTakenError(UsageError):
    """A place that the user wrote for something new and where something lies already."""


class DatasetError(RudderError):
    """A graph that cannot be read: missing, truncated, unsafe or inconsistent files."""


class PartitionError(RudderError):
    """A partition that cannot be made, does not fit in memory, or does not match its graph."""


class VersionError(RudderError):
    """Library versions that are known not to work together."""


class ClusterError(RudderError):
    """Hosts that cannot be started, reached or shaped."""


class NamespaceError(ClusterError):
    """The kernel does not allow the namespaces that emulated hosts are made of."""


class HostsFileError(UsageError):
    """A hosts file with a line that cannot be meant, or a host that must not be used."""


class PreflightError(ClusterError):
    """Hosts that are not as a job needs them: every problem of every host, and what mends it."""


class RoleError(ClusterError):
    """A process of a job died or did not report in time; names host, role and what it said last."""


class TransportError(RudderError):
    """A DistDGL request failed or returned something else than was asked for."""


class ReplayOnlyError(UsageError):
    """A controller that needs a recorded trace was asked to steer real training."""


class ControllerError(RudderError):
    """A controller that cannot be built, reset or moved to its trainer."""


class ConformanceError(RudderError):
    """A controller that breaks the contract of :class:`rudder.Controller`."""


class BufferUseError(RudderError):
    """A persistent buffer that was given arrays or calls that break its contract."""


class PolicyError(RudderError):
    """A replacement policy whose hooks returned what they must not."""


class BufferContentError(RudderError):
    """Test mode: a served feature row differs from the stored one."""


class TrackingError(RudderError):
    """MLflow refused or could not be reached; results stay on disk for ``rudder sync``."""


class TraceError(RudderError):
    """An access trace that is damaged, foreign or incomplete, or does not match what is run."""


class CheckpointError(RudderError):
    """A run that cannot go on: no checkpoint is whole, or it is of another partition or version."""


class ResultError(RudderError):
    """A stored run that is incomplete or written by another schema version."""


class WorkerError(RudderError):
    """A process that worked for this one was killed, or failed in a way that cannot be sent."""


class CollectionError(RudderError):
    """A collection of runs that is unfinished, damaged, or of another schema version."""


class SweepError(RudderError):
    """A sweep that another process works at, that is damaged, or of another schema version."""


class CalibrationError(RudderError):
    """A calibration of the model of time that is damaged, or a run that cannot give one."""


class ModelError(RudderError):
    """A fitted model that is missing, damaged, foreign, or does not fit what asks it."""


class TrainingDataError(RudderError):
    """Examples that no classifier can be fitted to, or that would leak across a split."""


def out_of_memory(error: BaseException) -> bool:
    """Does an exception say that memory ran out, on the CPU or on a GPU?

    PyTorch raises a plain ``RuntimeError`` on the CPU, and a class of its own on a GPU.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        told = str(error)
        gpu = type(error).__name__ == "OutOfMemoryError"
        return gpu or "can't allocate memory" in told or "Cannot allocate memory" in told
    return isinstance(error, MemoryError)
