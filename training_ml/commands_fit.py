"""``rudder fit`` and ``rudder models``: fitting classifiers, and which there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose
from rudder.cli.output import emit, progress, say
from rudder.cli.train import TrackingUri
from rudder.errors import TrackingError, UsageError
from rudder.home import Home
from rudder.model import ModelManifest, find_model
from rudder.registries import ESTIMATORS
from rudder.spec import Spec

from .collection import Collection
from .fit import Fitted, Material, default_columns
from .store import Stored, size, stored

AUTO = "auto"
_SHOWN = (
    "name", "accuracy", "balanced_accuracy", "f1", "auc", "balance", "predicted", "captured",
    "seconds", "kB",
)  # fmt: skip


def fit(
    estimators: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[ESTIMATOR]…", help="which to fit, NAME or NAME:key=value,…",
            show_default=False,
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="fit every estimator")] = False,
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="name or folder of a labelled collection", show_default="the newest"),
    ] = None,
    rule: Annotated[
        str, typer.Option(metavar="NAME", help="label rule by which it was labelled")
    ] = "counterfactual",
    columns: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME,NAME,…", help="features to fit to, in this order",
            show_default="all but those of seconds",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of fitting and search")] = 0,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="name of the model, if one is fitted", show_default="the estimator's"),
    ] = None,
    search: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="try N sets of hyperparameters first, on grouped folds"
        ),
    ] = 0,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="SHARE|auto",
            help="p(replace) from which the model replaces; auto = that which costs least on the "
            "validation part",
        ),
    ] = "0.5",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR", help="where models go, a directory each",
            show_default="models/ of the data directory",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="replace a model of the same name but another kind")
    ] = False,
    track: Annotated[
        bool, typer.Option(help="log to MLflow and its Model Registry")
    ] = True,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:  # fmt: skip
    """Fit classifiers to a labelled collection and judge them on runs that they have not seen.

    A model is named as its estimator, and `rudder train GRAPH --controller ESTIMATOR` then uses
    it. Fitting again replaces a model of that name and kind. Columns: balance is the share of
    'replace' among the labels, predicted among the answers; captured is the share of the possible
    saving that the answers collect. The last two rows are what any classifier must beat.
    """
    place = Home.resolve(home)
    specs = _asked(estimators or [], all_=all_)
    if name is not None and len(specs) != 1:
        raise UsageError(f"--name names one model, but {len(specs)} are to be fitted")
    limit = _threshold(threshold)
    wanted = _columns(columns)
    folder = place.models if out is None else out.expanduser().resolve()
    store = None
    if track:
        from rudder.tracking.store import Store

        store = Store(place, tracking_uri)  # a URI that is none is found before the work
    from .material import material_of

    opened = Collection.open(collection, place)
    material = material_of(opened, rule)
    _check_targets(specs, folder, name, force=force)
    done: list[tuple[Fitted, dict[str, Any]]] = []
    problem: str | None = None
    with progress(quiet=quiet or as_json) as report:
        for spec in specs:
            fitted = _fit_one(
                spec, material, folder / (name or spec.name), report,
                columns=wanted, seed=seed, threshold=limit, force=force, trials=search,
            )  # fmt: skip
            tracked = _tracked(store, fitted.folder)
            if tracked["not_tracked"]:
                # A store that is away is asked once: it may take its time to say so.
                store, problem = None, tracked["not_tracked"]
            done.append((fitted, {**tracked, "not_tracked": problem}))
    emit(
        [*(_row(fitted, tracked) for fitted, tracked in done), *_baselines(done[0][0])],
        as_json=as_json,
        columns=_SHOWN,
        title=f"{opened.name}, labelled by {material.training.label}; judged on held-out runs",
    )
    _tell(done[0][0], folder, problem)


def _asked(estimators: list[str], *, all_: bool) -> list[Spec]:
    if bool(estimators) == all_:
        raise UsageError(
            f"name estimators, or write --all; there are {', '.join(ESTIMATORS.names())}"
        )
    specs = [Spec.parse(text) for text in estimators or ESTIMATORS.names()]
    for spec in specs:
        ESTIMATORS.check(spec)
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise UsageError(
            f"{', '.join(names)} names an estimator twice, and models are named as estimators: fit "
            "one at a time, with --name"
        )
    return specs


def _threshold(text: str) -> float | None:
    if text == AUTO:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--threshold is a share in 0..1, or {AUTO}; found {text!r}")
    return value


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return default_columns()
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_targets(specs: list[Spec], folder: Path, name: str | None, *, force: bool) -> None:
    """What cannot be written is told before anything is fitted."""
    from .store import check_free, check_name

    for spec in specs:
        check_name(name or spec.name)
        check_free(folder / (name or spec.name), spec.name, force=force)


def _fit_one(
    spec: Spec,
    material: Material,
    folder: Path,
    report: Any,
    *,
    columns: tuple[str, ...],
    seed: int,
    threshold: float | None,
    force: bool,
    trials: int,
) -> Fitted:
    from .fit import fit as fit_model

    facts: Mapping[str, Any] | None = None
    if trials:
        from .checks import check, select
        from .search import search

        check(material.parts, columns)
        parts = {part: select(found, columns) for part, found in material.parts.items()}
        searched = search(spec, parts, trials, seed, report)
        spec, facts = searched.spec, searched.facts()

    def told(what: str, share: float) -> None:
        report(f"fit {spec.name}", share)

    told("", 0.0)
    fitted = fit_model(
        spec, material, folder, told,
        columns=columns, seed=seed, threshold=threshold, force=force, search=facts,
    )  # fmt: skip
    told("", 1.0)
    return fitted


def _tracked(store: Any, folder: Path) -> dict[str, Any]:
    """Where MLflow keeps a model, or why not: a fit never fails for that."""
    if store is None:
        return {"registered": None, "not_tracked": None}
    from .registry import register

    try:
        return {"registered": register(store, folder).uri, "not_tracked": None}
    except TrackingError as error:
        return {"registered": None, "not_tracked": str(error)}


def _row(fitted: Fitted, tracked: Mapping[str, Any]) -> dict[str, Any]:
    manifest = fitted.manifest
    own = {k: v for k, v in manifest.metrics.items() if not k.startswith(("majority_", "single_"))}
    return {
        "name": manifest.name,
        "kind": "model",
        **own,
        "seconds": round(fitted.seconds, 2),
        "kB": round(fitted.size / 1000, 1),
        "estimator": str(manifest.spec),
        "threshold": manifest.threshold,
        "folder": fitted.folder,
        "fitted": manifest.fitted,
        **tracked,
    }


def _baselines(fitted: Fitted) -> list[dict[str, Any]]:
    """The two rows below the models; the same whatever was fitted."""
    metrics, told = fitted.manifest.metrics, fitted.manifest.fitted
    rows = []
    for prefix, title in (
        ("majority_", f"majority class: {told['majority']}"),
        ("single_", f"one feature: {told['single_feature_rule']}"),
    ):
        own = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        rows.append({"name": title, "kind": "baseline", **own})
    return rows


def _tell(first: Fitted, folder: Path, problem: str | None) -> None:
    counts = first.manifest.training.examples
    say("examples: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    if first.checked.constant:
        told = ", ".join(first.checked.constant)
        say(f"constant in the training part, so of no use and left out: {told}")
    say(f"models: {folder}")
    if problem is not None:
        say(
            f"not logged: {problem}. The models are fitted; 'rudder models NAME --track' logs one "
            "later."
        )


def models(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[NAME]", help="one of them, or a model's directory",
                       show_default=False),
    ] = None,
    track: Annotated[
        bool, typer.Option("--track", help="log it to MLflow and its Model Registry, if it is not")
    ] = False,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:  # fmt: skip
    """List the fitted models, or tell the facts of one.

    Those of the data directory go before shipped ones of the same name.
    """
    place = Home.resolve(home)
    if name is None:
        if track:
            raise UsageError("--track needs the NAME of a model")
        _list(place, as_json=as_json)
        return
    folder = find_model(name, place)
    manifest = ModelManifest.read(folder)
    found: dict[str, Any] = {"name": manifest.name, "folder": folder, "bytes": size(folder)}
    if track:
        from rudder.tracking.store import Store

        from .registry import register

        found["registered"] = register(Store(place, tracking_uri), folder).uri
    if as_json:
        emit({**manifest.model_dump(mode="json"), **found}, as_json=True)
        return
    emit({**found, **_facts(manifest)}, as_json=False)


def _list(home: Home, *, as_json: bool) -> None:
    own: set[str] = set()
    rows = []
    for item in stored(home):
        hidden = item.place == "shipped" and item.name in own
        if item.place == "home":
            own.add(item.name)
        rows.append(_listing(item, used=item.manifest is not None and not hidden))
    shown = (
        "name", "place", "used", "estimator", "label", "suite", "accuracy", "auc", "captured",
        "kB", "problem",
    )  # fmt: skip
    emit(rows, as_json=as_json, columns=shown)
    if not rows:
        say("no models; 'rudder fit --all' fits some")


def _listing(item: Stored, *, used: bool) -> dict[str, Any]:
    manifest = item.manifest
    row: dict[str, Any] = {"name": item.name, "place": item.place, "used": used}
    if manifest is not None:
        row |= {
            "estimator": manifest.spec.name,
            "params": dict(manifest.spec.params),
            "label": manifest.training.label,
            "suite": manifest.training.suite,
            "seed": manifest.seed,
            "created": manifest.created,
            "accuracy": manifest.metrics.get("accuracy"),
            "auc": manifest.metrics.get("auc"),
            "captured": manifest.metrics.get("captured"),
        }
    if item.folder is not None:
        row |= {"kB": round(size(item.folder) / 1000, 1), "folder": item.folder}
    return {**row, "problem": item.problem or None}


def _facts(manifest: ModelManifest) -> dict[str, Any]:
    """What a person wants to know of one model; all of it is in the JSON."""
    training = manifest.training
    return {
        "estimator": str(manifest.spec),
        "threshold": manifest.threshold,
        "columns": manifest.names,
        "suite": f"{training.suite} ({training.suite_digest})",
        "scenarios": list(training.scenarios),
        "graphs": training.graphs,
        "seeds": training.seeds,
        "label": training.label,
        "examples": training.examples,
        "seed": manifest.seed,
        **manifest.metrics,
        "fitted": {k: v for k, v in manifest.fitted.items() if v not in (None, [])},
        "made_with": manifest.made_with,
        "compatible": manifest.compatible,
        "created": manifest.created,
    }
