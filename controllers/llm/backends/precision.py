"""Precisions of local weights, and what to use where one cannot run."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, Literal, get_args

from rudder.errors import SpecError

_log = logging.getLogger(__name__)

Precision = Literal["float32", "bf16", "int8", "nf4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
BYTES = {"float32": 4.0, "bf16": 2.0, "int8": 1.1, "nf4": 0.6}
"""Per weight, with what quantisation adds (scales, and layers that stay as they are)."""


def check_precision(name: str, value: str) -> Precision:
    """A precision by name.

    Raises:
        SpecError: there is no such precision.
    """
    if value not in PRECISIONS:
        raise SpecError(f"{name} must be one of {', '.join(PRECISIONS)}, found {value!r}")
    return value


def usable(asked: Precision, fallback: Precision) -> Precision:
    """``asked`` where this installation can run it, else ``fallback``, and the log says so."""
    if asked in ("int8", "nf4") and importlib.util.find_spec("bitsandbytes") is None:
        _log.warning(
            "precision %s needs bitsandbytes, which is not installed; using %s", asked, fallback
        )
        return fallback
    return asked


def arguments(precision: Precision) -> dict[str, Any]:
    """What ``from_pretrained`` is given for a precision."""
    import torch

    if precision == "float32":
        return {"dtype": torch.float32}
    if precision == "bf16":
        return {"dtype": torch.bfloat16}
    from transformers import BitsAndBytesConfig

    if precision == "int8":
        config = BitsAndBytesConfig(load_in_8bit=True)
    else:
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    return {"dtype": torch.bfloat16, "quantization_config": config}
