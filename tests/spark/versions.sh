#!/usr/bin/env bash
# The tests of batches, mappings, reductions, streams and (since 4.1) filters on other versions of Spark, half a GB each
# in build/:
#   tests/spark/versions.sh .venv/bin/python 4.0.5 4.1.4 4.2.1
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 before=${PYTHONPATH:-}; shift
for version; do
    place=$PWD/build/pyspark-$version
    [ -e "$place/pyspark/version.py" ] || "$python" -m pip install -q --no-deps --target "$place" "pyspark==$version"
    export PYTHONPATH=$place${before:+:$before}
    "$python" -c "import pyspark; assert pyspark.__version__ == '$version', pyspark.__version__"
    modules=(tests/spark/test_spark_{read,source,mapping,partitions,aggregate,stream}.py)
    case $version in 4.0.*) ;; *) modules+=(tests/spark/test_spark_filters.py) ;; esac
    "$python" -m pytest -q -m spark "${modules[@]}"
done
