"""Model of time: from counted bytes to seconds of an epoch. See README.md for its equations."""

from rudder.timing.fitting import calibrate
from rudder.timing.machine import Machine
from rudder.timing.prediction import Prediction, predict
from rudder.timing.recurrence import run_epoch
from rudder.timing.replayed import CalibratedTime, calibrated_time
from rudder.timing.traffic import Traffic

__all__ = [
    "CalibratedTime",
    "Machine",
    "Prediction",
    "Traffic",
    "calibrate",
    "calibrated_time",
    "predict",
    "run_epoch",
]
