"""What one answer of each classifier takes: a single row, in a thread of its own.

    python -I tests/benchmarks/bench_inference.py [--rows 4000] [--calls 2000] [--json]

Each estimator is fitted to made-up examples of the usual number of columns, with its defaults,
saved and restored, and then asked one row at a time. ``answer`` is the whole of what a controller
does: :meth:`FittedModel.p_replace` and the check of the support. ``threads`` is the process's CPU
time per second of the asking thread's: 1 = no other thread was put to work.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rudder.model import Column, Estimator, Examples, FittedModel, ModelManifest, Support, Training
from rudder.observation import FEATURES, SCHEMA_VERSION
from rudder.registries import ESTIMATORS

SPECS = ("mlp", "tabnet", "xgboost", "svm", "svm:kernel=linear", "logistic", "forest")
COLUMNS = [f for f in FEATURES if f.name not in ("fetch_time_share", "stall_time_share")]


def examples(rows: int, seed: int) -> Examples:
    """Noisy, so that models become as large as they do on real labels."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, len(COLUMNS)))
    score = values[:, 0] * values[:, 1] + values[:, 2] + random.normal(size=rows)
    return Examples(
        tuple(f.name for f in COLUMNS),
        values,
        (score > np.quantile(score, 0.7)).astype(np.int8),
        random.uniform(0.5, 1.5, rows),
        np.array([f"{seed}-{run}" for run in random.integers(8, size=rows)]),
    )


def manifest(spec: str, rows: Any) -> ModelManifest:
    training = Training(
        suite="", suite_digest="", scenarios={}, graphs=(), traces=(), seeds=(), collection="",
        label="", examples={},
    )  # fmt: skip
    return ModelManifest(
        name="bench",
        estimator=ESTIMATORS.resolve(spec).to_dict(),
        observation_schema=SCHEMA_VERSION,
        columns=tuple(Column(name=f.name, unit=f.unit) for f in COLUMNS),
        files={},
        support=Support.of(rows),
        training=training,
    )


def timed(call: Callable[[Any], Any], rows: Any, calls: int) -> tuple[np.ndarray, float]:
    """Microseconds of each call, and CPU seconds of the process per second of this thread."""
    for row in rows[:100]:
        call(row)
    took = np.empty(calls)
    process, thread = time.process_time(), time.thread_time()
    for number in range(calls):
        row = rows[number % len(rows)]
        begun = time.perf_counter_ns()
        call(row)
        took[number] = (time.perf_counter_ns() - begun) / 1e3
    return took, (time.process_time() - process) / (time.thread_time() - thread)


def measure(rows: int, calls: int) -> Iterator[dict[str, Any]]:
    train, validation, asked = (examples(n, s) for s, n in enumerate((rows, rows // 4, 500)))
    for spec in SPECS:
        fitted: Estimator = ESTIMATORS.build(spec)
        begun = time.perf_counter()
        fitted.fit(train, validation, 0, lambda *_: None)
        fit_s = time.perf_counter() - begun
        estimator: Estimator = ESTIMATORS.build(spec)
        with tempfile.TemporaryDirectory() as folder:
            fitted.save(Path(folder))
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
            begun = time.perf_counter()
            estimator.restore(Path(folder), len(COLUMNS))
            restore_s = time.perf_counter() - begun
        model = FittedModel(manifest(spec, train.rows), estimator)

        def answer(row: Any, model: FittedModel = model) -> bool:
            model.p_replace(row)
            return model.support.inside(row)

        time.sleep(0.5)  # threads that fitting used go on waiting for work for a while
        alone, threads = timed(lambda row, e=estimator: e.predict(row[None, :]), asked.rows, calls)
        whole, _ = timed(answer, asked.rows, calls)
        yield {
            "estimator": spec,
            "predict_median_us": float(np.median(alone)),
            "predict_p95_us": float(np.quantile(alone, 0.95)),
            "answer_median_us": float(np.median(whole)),
            "answer_p95_us": float(np.quantile(whole, 0.95)),
            "threads": threads,
            "fit_s": fit_s,
            "restore_ms": 1e3 * restore_s,
            "size_kb": size / 1e3,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        found = list(measure(options.rows, options.calls))
        print(json.dumps({"machine": platform.processor(), **vars(options), "found": found}))
        return
    print(f"fitted to {options.rows} rows of {len(COLUMNS)} columns; microseconds per row")
    head = ("estimator", "predict", "p95", "answer", "p95", "threads", "fit s", "read ms", "kB")
    print("{:<18}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}".format(*head))
    for row in measure(options.rows, options.calls):
        name, *numbers = row.values()
        print(f"{name:<18}" + "".join(f"{n:>9.{2 if n < 10 else 0}f}" for n in numbers), flush=True)


if __name__ == "__main__":
    main()
