"""Is plain DistDGL (``none``, prefetch depth 0) as fast as a straight loop without Rudder?

    python -I tests/benchmarks/bench_plain.py --rate 100 --blocks 5

Both do the same work: same graph, partition, sampler, model, minibatches. Blocks are interleaved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import numpy as np
import pairs

from rudder.distdgl.launch import launch
from rudder.partition import ensure_partition
from rudder.registries import ENGINES
from rudder.running import new_run_id
from rudder.summary import steady_epoch_seconds


def main() -> None:
    parser = pairs.parser(__doc__.splitlines()[0], blocks=5)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    place = pairs.home(args.home)
    partition = ensure_partition(args.graph, 4, "metis", 0, place.partitions, lambda *_: None)
    script = Path(__file__).with_name("straight.py")

    def straight(block: int) -> dict[str, float]:
        run_dir = place.runs / new_run_id()
        run_dir.mkdir(parents=True)
        launch(
            script,
            ["--ip_config", "{ip_config}", "--part_config", "{part_config}",
             "--graph_name", "{graph_name}", "--out", str(run_dir), "--batch_size", "200",
             "--epochs", str(args.epochs), "--classes", str(partition.classes)],
            partition, run_dir, rate=args.rate,
        )  # fmt: skip
        ranks = [json.loads(p.read_text()) for p in sorted(run_dir.glob("straight-*.json"))]
        return {"epoch_seconds": steady_epoch_seconds(ranks) or np.nan}

    def plain(block: int) -> dict[str, float]:
        result = pairs.run(
            ENGINES.build("distdgl"),
            place,
            "none",
            graph=args.graph,
            rate=args.rate,
            prefetch_depth=0,
            epochs=args.epochs,
        )
        return {"epoch_seconds": result.summary["epoch_seconds"]}

    found = pairs.interleave(args.blocks, {"straight": straight, "plain": plain})
    pairs.emit(
        {
            "graph": args.graph,
            "rate": args.rate,
            "blocks": args.blocks,
            "values": found,
            "plain / straight": pairs.ratios(
                found["plain"]["epoch_seconds"], found["straight"]["epoch_seconds"]
            ),
        }
    )


if __name__ == "__main__":
    main()
