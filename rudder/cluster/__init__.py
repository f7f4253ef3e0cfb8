"""Hosts, the links between them, and the supervision of a job's processes.

``LocalCluster`` emulates hosts on one Linux machine; ``Supervisor`` runs the roles of a job on the
hosts of any ``Cluster`` and ends all of them as soon as one fails. See ``README.md`` beside this
file.
"""

from rudder.cluster.hosts import Cluster, Counters, Host, RoleProcess
from rudder.cluster.local import LocalCluster
from rudder.cluster.report import Report
from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Deadline, Supervisor

__all__ = [
    "Cluster",
    "Counters",
    "Deadline",
    "Host",
    "LocalCluster",
    "Report",
    "Role",
    "RoleProcess",
    "Supervisor",
]
