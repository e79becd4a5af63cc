"""`python -m bench [PART ...] [--quick]`: see bench/__init__.py."""
from __future__ import annotations

import argparse
import importlib

from bench import report

PARTS = {"kafka": "bench.kafka_records", "lookup": "bench.kafka_lookup", "fetch": "bench.kafka_fetch",
         "encode": "bench.kafka_encode", "lumberjack": "bench.lumberjack", "nats": "bench.nats",
         "liftbridge": "bench.liftbridge", "thrift": "bench.thrift", "planning": "bench.planning",
         "spark": "bench.spark"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks, as ratios in one run.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to run; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs; nothing is written")
    given = parser.parse_args()
    for name in given.parts or PARTS:
        part = importlib.import_module(PARTS[name])
        text = part.run(**(part.QUICK if given.quick else part.FULL))
        print(text)
        if given.quick:
            print("Quick: these figures say nothing about speed.\n")
        else:
            report.write(text)


if __name__ == "__main__":
    main()
