"""The registries: one instance per kind of plug-in.

A plug-in module registers into these when it is imported::

    from rudder.registries import CONTROLLERS

    CONTROLLERS.register("mine", "my_package.mine:Mine", summary="what it does")
"""

from __future__ import annotations

from rudder.plugins import load_installed
from rudder.registry import Registry

CONTROLLERS = Registry("controller", base="rudder.controller:Controller")
POLICIES = Registry("policy", base="rudder.policies.base:Policy")
DATASETS = Registry("dataset", base="rudder.dataset:Graph")
PARTITIONERS = Registry("partitioner", base="rudder.partition:Partitioner")
TRACES = Registry("trace", base="pathlib:Path")
ESTIMATORS = Registry("estimator", base="rudder.model.estimator:Estimator")
MODELS = Registry("model", base="pathlib:Path")
SUITES = Registry("suite", base="rudder.suite:Suite")
ENGINES = Registry("engine", base="rudder.engine:Engine")
COMMANDS = Registry("command")

ALL = (
    CONTROLLERS, POLICIES, DATASETS, PARTITIONERS, TRACES, ESTIMATORS, MODELS, SUITES, ENGINES,
    COMMANDS,
)  # fmt: skip

for _registry in ALL:
    _registry.on_first_use(load_installed)
