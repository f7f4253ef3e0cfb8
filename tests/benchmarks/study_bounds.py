"""What buffers save on sampled traces, beside what any buffer could: shares, regret to MIN.

Communication = rows fetched beside a buffer / remote rows sampled (what no buffer fetches). All
start with the nodes of highest degree in the buffer, whose rows are not counted. The last columns
start from an empty buffer, so that whatever it takes to fill it is counted.

python -I tests/benchmarks/study_bounds.py [--cases wordnet] [--window 8] [--home DIR] [--json]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import traces

from rudder.home import Home

BUFFERS = (0.05, 0.25)
RUNS = {
    "static": ("static", "degree"),
    "score": ("always", "score"),
    "score-published": ("always", "score-published"),
    "massivegnn": ("massivegnn", "massivegnn"),
    "lru": ("always", "lru"),
    "lfu": ("always", "lfu"),
}
"""Column: controller and policy."""


def study(
    place: Home, case: traces.Case, buffer: float, window: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Shares of no buffer, and regrets, of one case and buffer."""
    trace = traces.sampled(place, case.scenario())
    head: dict[str, Any] = {"case": case.label, "buffer": f"{buffer:.0%}"}
    shares, regrets = dict(head), dict(head)
    runs = {**RUNS, "lookahead": ("always", f"lookahead:window={window}")}
    for column, (controller, policy) in runs.items():
        found = traces.replay(place, trace, controller, policy=policy, buffer=buffer)
        shares[column] = found["communication_vs_no_buffer"]
        regrets[column] = found["regret"]
    sampled = found["remote_sampled"]
    shares["best static set"] = found["best_static_fetched"] / sampled
    shares["min"] = found["min_fetched"] / sampled
    regrets["best static set"] = found["best_static_fetched"] / found["min_fetched"]
    empty = traces.replay(
        place, trace, "always", policy=runs["lookahead"][1], fill="empty", buffer=buffer
    )
    shares["min from empty"] = empty["min_fetched"] / sampled
    regrets["lookahead from empty"] = empty["regret"]
    return shares, regrets


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--window", type=int, default=8, help="minibatches lookahead sees")
    args = parser.parse_args()
    place = traces.home(args.home)
    found = [
        study(place, traces.CASES[name], buffer, args.window)
        for name in args.cases
        for buffer in BUFFERS
    ]
    traces.show(
        {
            "Communication as a share of no buffer": [shares for shares, _ in found],
            "Regret to MIN": [regrets for _, regrets in found],
        },
        as_json=args.json,
    )


if __name__ == "__main__":
    main()
