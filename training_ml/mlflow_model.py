"""A fitted model as MLflow loads it: this file is its code, the model's directory its artifact.

MLflow executes a copy of this file, so that it imports the project absolutely and only from the
core. Nothing is unpickled: the directory is checked and read as everywhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from rudder.model import FittedModel


class ReplaceOrKeep(PythonModel):  # type: ignore[misc]
    """p(replace) and the decision, of rows whose columns are named as in an observation."""

    def load_context(self, context: Any) -> None:
        """Check and read the model's directory.

        Raises:
            ModelError: it is damaged, foreign, or made for other library versions.
        """
        self._model = FittedModel.load(Path(context.artifacts["model"]))

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Columns ``p_replace`` (float64) and ``replace`` (bool), one row per row given.

        Raises:
            ModelError: NaN or infinity, or columns that are not the model's.
        """
        names = [str(name) for name in model_input.columns]
        p = self._model.predict(model_input.to_numpy(dtype="float64"), names)
        return pd.DataFrame({"p_replace": p, "replace": p >= self._model.manifest.threshold})


set_model(ReplaceOrKeep())
