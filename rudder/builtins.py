"""What the core registers: its policies, engines and commands, as any plug-in would."""

from __future__ import annotations

from rudder.registries import COMMANDS, CONTROLLERS, ENGINES, POLICIES

ENGINES.register(
    "distdgl", "rudder.distdgl.engine:DistDGLEngine", summary="real training on emulated hosts"
)
ENGINES.register(
    "replay",
    "rudder.replay.engine:ReplayEngine",
    summary="a recorded trace through the same buffer and steering, seconds modelled",
)
CONTROLLERS.register(
    "recorded",
    "rudder.replay.recorded:Recorded",
    summary="gives an earlier run's answers at the same minibatches (replay only)",
    params={"run": ""},
    fields={"mode": "sync"},
)
CONTROLLERS.register(
    "timing-oracle",
    "rudder.replay.oracle:TimingOracle",
    summary="looks both answers up in the trace and takes the cheaper (replay only)",
    params={"horizon": 32, "objective": "communication"},
)
POLICIES.register(
    "score",
    "rudder.policies.decayed:Score",
    summary="+1 with access, x0.95 without; stale below 0.95 (the paper)",
)
POLICIES.register(
    "score-published",
    "rudder.policies.decayed:ScorePublished",
    summary="the published code's rule: victims come back at once, rows are fetched again",
)
POLICIES.register(
    "massivegnn",
    "rudder.policies.decayed:MassiveGNN",
    summary="x(1-alpha) without access, unchanged with; stale after interval idle minibatches",
    params={"alpha": 0.05, "interval": 16},
)
POLICIES.register(
    "degree",
    "rudder.policies.decayed:Degree",
    summary="weights that never change: nothing is stale, nothing replaced",
)
POLICIES.register(
    "presampled",
    "rudder.policies.decayed:Presampled",
    summary="static, filled with what most of some minibatches sampled beforehand needed",
    params={"minibatches": 32},
)
POLICIES.register(
    "lru",
    "rudder.policies.admitting:Lru",
    summary="decides itself: every missed row comes in, for the one idle for longest",
)
POLICIES.register(
    "lfu",
    "rudder.policies.admitting:Lfu",
    summary="decides itself: keeps what most minibatches so far needed",
)
POLICIES.register(
    "lfu-decay",
    "rudder.policies.admitting:LfuDecay",
    summary="decides itself: lfu with counts that fade",
    params={"decay": 0.99},
)
POLICIES.register(
    "lookahead",
    "rudder.policies.admitting:Lookahead",
    summary="decides itself: keeps what the sampled minibatches ahead need, nearest first",
    params={"window": 8},
)
COMMANDS.register(
    "doctor",
    "rudder.cli.doctor:doctor",
    summary="what this machine can do: versions, hosts, GPU, plug-ins",
    fields={"section": "Look"},
)
COMMANDS.register(
    "sync",
    "rudder.tracking.commands:sync",
    summary="send runs to MLflow that could not reach it",
    fields={"section": "Compare"},
)
COMMANDS.register(
    "ui",
    "rudder.tracking.commands:ui",
    summary="MLflow UI on this project's runs",
    fields={"section": "Compare"},
)
for _name, _summary in {
    "demo": "the story on the bundled graph, in minutes",
    "train": "one real DistDGL run, steered by a controller",
    "trace": "record what a run samples, for replays",
    "launch": "somebody's own DistDGL script on the same hosts",
}.items():
    COMMANDS.register(
        _name, f"rudder.cli.{_name}:{_name}", summary=_summary, fields={"section": "Run"}
    )
for _name, _target, _summary, _section in (
    ("controllers", "look:controllers", "list the controllers, or show one", "Look"),
    ("policies", "look:policies", "list the replacement policies, or show one", "Look"),
    ("suites", "look:suites", "list the suites of scenarios, or show one", "Look"),
    ("replay", "replay:replay", "a recorded trace under a controller, and what could be", "Run"),
    ("calibrate-time", "timing:calibrate_time", "fit the model of time to a real run", "Prepare"),
    ("estimate", "timing:estimate_scale", "seconds at a size that was never run", "Compare"),
    ("check", "check:check", "does a controller keep its contract?", "Extend"),
):
    COMMANDS.register(
        _name, f"rudder.cli.{_target}", summary=_summary, fields={"section": _section}
    )
