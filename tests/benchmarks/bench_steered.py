"""Steered runs against plain DistDGL: epoch time and communication, interleaved blocks.

    python -I tests/benchmarks/bench_steered.py --rate 100 --blocks 3 \
        --configurations "static always fixed threshold always/lookahead"

A configuration is CONTROLLER or CONTROLLER/POLICY. Block k uses seed k in every configuration.
Prints a Markdown table: medians over the blocks, in brackets the least and greatest.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import pairs

from rudder.registries import ENGINES

KEYS = ("epoch_seconds", "bytes_fetched", "hit_rate", "test_metric")
PLAIN = "plain DistDGL"


def main() -> None:
    parser = pairs.parser(__doc__.splitlines()[0], blocks=3)
    parser.add_argument("--configurations", default="always", help="separated by spaces")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    place, engine = pairs.home(args.home), ENGINES.build("distdgl")

    def case(controller: str, block: int, **fields: object) -> dict[str, float]:
        result = pairs.run(
            engine, place, controller, graph=args.graph, rate=args.rate, epochs=args.epochs,
            seed=block, **fields,
        )  # fmt: skip
        return {key: result.summary[key] for key in KEYS}

    cases = {PLAIN: partial(case, "none", prefetch_depth=0)}
    for name in args.configurations.split():
        controller, _, policy = name.partition("/")
        cases[name] = partial(case, controller, **({"policy": policy} if policy else {}))
    with engine:
        found = pairs.interleave(args.blocks, cases)
    against = {
        name: {key: pairs.ratios(values[key], found[PLAIN][key]) for key in KEYS[:2]}
        for name, values in found.items()
    }
    if args.json:
        pairs.emit({**vars(args), "home": str(place.root), "values": found, "ratios": against})
        return
    print("| configuration | epoch s | × plain | MB fetched | × plain | %-Hits | test accuracy |")
    print("|---|---|---|---|---|---|---|")
    for name, values in found.items():
        cells = [
            spread(values["epoch_seconds"], 2), ratio(against[name]["epoch_seconds"]),
            f"{statistics.median(values['bytes_fetched']) / 1e6:.0f}",
            ratio(against[name]["bytes_fetched"]),
            f"{100 * statistics.median(values['hit_rate']):.1f}", spread(values["test_metric"], 3),
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join(cells) + " |")


def spread(values: Sequence[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} [{found['min']:.2f}, {found['max']:.2f}]"


if __name__ == "__main__":
    main()
