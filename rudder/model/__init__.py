"""Fitted models: the estimator's contract, what lies beside the weights, finding and loading."""

from rudder.model.estimator import Estimator, Examples, Rows, Told, Trial
from rudder.model.find import find_model, locate, models_of
from rudder.model.fitted import FittedModel
from rudder.model.manifest import MANIFEST_FILE, Column, ModelManifest, Training, sha256
from rudder.model.support import Support, SupportCheck

__all__ = [
    "MANIFEST_FILE",
    "Column",
    "Estimator",
    "Examples",
    "FittedModel",
    "ModelManifest",
    "Rows",
    "Support",
    "SupportCheck",
    "Told",
    "Training",
    "Trial",
    "find_model",
    "locate",
    "models_of",
    "sha256",
]
