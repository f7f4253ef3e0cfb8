"""Steered runs against plain DistDGL: communication and epoch time, interleaved blocks.

Block k uses seed k, in every configuration.

python -I tests/benchmarks/bench_steered.py --controllers static,always --rate 100 --blocks 3
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import pairs

from rudder.registries import ENGINES

KEYS = ("epoch_seconds", "bytes_fetched", "hit_rate", "test_metric")


def main() -> None:
    parser = pairs.parser(__doc__.splitlines()[0], blocks=3)
    parser.add_argument("--controllers", default="always", help="specs, separated by spaces or ,")
    args = parser.parse_args()
    place, engine = pairs.home(args.home), ENGINES.build("distdgl")

    def case(controller: str, block: int, **fields: object) -> dict[str, float]:
        result = pairs.run(
            engine, place, controller, graph=args.graph, rate=args.rate, seed=block, **fields
        )
        return {key: result.summary[key] for key in KEYS}

    cases = {"plain": partial(case, "none", prefetch_depth=0)}
    for controller in args.controllers.replace(",", " ").split():
        cases[controller] = partial(case, controller)
    with engine:
        found = pairs.interleave(args.blocks, cases)
    pairs.emit(
        {
            "graph": args.graph,
            "rate": args.rate,
            "blocks": args.blocks,
            "values": found,
            "against plain": {
                name: {
                    key: pairs.ratios(values[key], found["plain"][key])
                    for key in ("epoch_seconds", "bytes_fetched")
                }
                for name, values in found.items()
                if name != "plain"
            },
        }
    )


if __name__ == "__main__":
    main()
