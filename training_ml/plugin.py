"""Registers what turns recorded traces into classifiers: commands, estimators, shipped models."""

from __future__ import annotations

from pathlib import Path

from rudder.registries import COMMANDS, ESTIMATORS, MODELS

COMMANDS.register(
    "collect",
    "rudder_training_ml.commands_collect:collect_command",
    summary="run a suite under exploring schedules, keep every decision",
    fields={"section": "Learn"},
)
COMMANDS.register(
    "label",
    "rudder_training_ml.commands_label:label",
    summary="what would have been right at every decision of a collection",
    fields={"section": "Learn"},
)
COMMANDS.register(
    "fit",
    "rudder_training_ml.commands_fit:fit",
    summary="fit classifiers to a labelled collection, judge them on held-out runs",
    fields={"section": "Learn"},
)
COMMANDS.register(
    "calibrate",
    "rudder_training_ml.commands_calibrate:calibrate",
    summary="fit the p(replace) from which an agent's answer means replace",
    fields={"section": "Learn"},
)
COMMANDS.register(
    "models",
    "rudder_training_ml.commands_fit:models",
    summary="list the fitted models, or show one",
    fields={"section": "Look"},
)

_NETWORK = {"batch": 256, "balance": True, "adapt_rate": 0.01}
for _name, _class, _summary, _params in (
    (
        "mlp",
        "Mlp",
        "multilayer perceptron; can go on learning",
        {
            "hidden": 32, "layers": 2, "dropout": 0.1, "rate": 3e-3, "decay": 1e-3, "epochs": 200,
            "patience": 20, **_NETWORK,
        },
    ),
    (
        "tabnet",
        "TabNet",
        "attention over columns, in steps; can go on learning",
        {
            "width": 8, "steps": 3, "gamma": 1.5, "shared": 1, "independent": 1, "sparsity": 1e-3,
            "rate": 0.02, "decay": 1e-4, "epochs": 100, "patience": 15, **_NETWORK,
        },
    ),
    (
        "xgboost",
        "XGBoost",
        "gradient-boosted trees",
        {
            "rounds": 300, "patience": 25, "depth": 4, "rate": 0.1, "least": 2.0, "l2": 1.0,
            "sample": 0.8, "columns": 0.8, "balance": True,
        },
    ),
    (
        "svm",
        "Svm",
        "support vector machine, rbf or linear, with calibrated probabilities",
        {"kernel": "rbf", "c": None, "gamma": None, "folds": 4, "rows": 4000, "balance": True},
    ),
    ("logistic", "Logistic", "logistic regression", {"c": None, "balance": True}),
    (
        "forest",
        "Forest",
        "random forest",
        {"trees": 40, "depth": None, "leaf": 10, "columns": 0.25, "balance": True},
    ),
):  # fmt: skip
    ESTIMATORS.register(
        _name,
        f"rudder_training_ml.estimators.{_name}:{_class}",
        summary=_summary,
        params=_params,
    )

for _manifest in sorted((Path(__file__).parent / "models").glob("*/model.json")):
    _name = _manifest.parent.name
    MODELS.register(
        _name,
        "rudder_training_ml.store:shipped",
        summary=f"the classifier {_name} as it ships",
        params={"name": _name},
        origin=str(_manifest),
    )
