"""`python -m bench [PART ...] [--quick]`: see bench/__init__.py."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

from bench import report

PARTS = {
    "kafka": "bench.suites.kafka_records",
    "shapes": "bench.suites.kafka_shapes",
    "growth": "bench.suites.growth",
    "arrow": "bench.suites.kafka_arrow",
    "batches": "bench.suites.small_batches",
    "protocols": "bench.suites.protocols_arrow",
    "convert": "bench.suites.convert",
    "lookup": "bench.suites.kafka_lookup",
    "fetch": "bench.suites.kafka_fetch",
    "tiered": "bench.suites.kafka_tiered",
    "encode": "bench.suites.kafka_encode",
    "lumberjack": "bench.suites.lumberjack",
    "nats": "bench.suites.nats",
    "liftbridge": "bench.suites.liftbridge",
    "thrift": "bench.suites.thrift",
    "captures": "bench.suites.captures",
    "small": "bench.suites.small_calls",
    "planning": "bench.suites.planning",
    "libraries": "bench.suites.kept_libraries",
    "lazy": "bench.suites.lazy_sources",
    "payloads": "bench.suites.payloads",
    "spark": "bench.suites.spark",
    "aggregates": "bench.suites.spark_aggregates",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks, as ratios in one run."
    )
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="the parts to run (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run with small data, and write nothing"
    )
    parser.add_argument(
        "--huge",
        action="store_true",
        help="growth: read up to 8 GiB, with 8 GiB of disk and about 16 GiB of memory",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=report.RESULTS,
        metavar="FILE",
        help="the file that the results are written to (default: bench/RESULTS.md)",
    )
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        suite = importlib.import_module(PARTS[name])
        text = suite.run(**choose_scale(suite, quick=arguments.quick, huge=arguments.huge))
        print(text)
        if arguments.quick:
            print("Quick: these figures say nothing about speed.\n")
        else:
            report.write(text, arguments.results)


def choose_scale(suite: ModuleType, *, quick: bool, huge: bool) -> dict[str, int]:
    """Return the arguments of a suite's `run`. Only some suites have a huge scale."""
    if quick:
        return suite.QUICK
    return getattr(suite, "HUGE", suite.FULL) if huge else suite.FULL


if __name__ == "__main__":
    main()
