"""`python -m bench [PART ...] [--quick]`: see bench/__init__.py."""

from __future__ import annotations

import argparse
import importlib

from bench import report

PARTS = {
    "kafka": "bench.suites.kafka_records",
    "shapes": "bench.suites.kafka_shapes",
    "arrow": "bench.suites.kafka_arrow",
    "lookup": "bench.suites.kafka_lookup",
    "fetch": "bench.suites.kafka_fetch",
    "encode": "bench.suites.kafka_encode",
    "lumberjack": "bench.suites.lumberjack",
    "nats": "bench.suites.nats",
    "liftbridge": "bench.suites.liftbridge",
    "thrift": "bench.suites.thrift",
    "small": "bench.suites.small_calls",
    "planning": "bench.suites.planning",
    "libraries": "bench.suites.kept_libraries",
    "payloads": "bench.suites.payloads",
    "spark": "bench.suites.spark",
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
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        suite = importlib.import_module(PARTS[name])
        text = suite.run(**(suite.QUICK if arguments.quick else suite.FULL))
        print(text)
        if arguments.quick:
            print("Quick: these figures say nothing about speed.\n")
        else:
            report.write(text)


if __name__ == "__main__":
    main()
