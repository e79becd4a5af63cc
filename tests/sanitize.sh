#!/bin/sh
# Build a copy of this tree under AddressSanitizer and UBSan, and run the tests of the kernels in it.
# usage: tests/sanitize.sh [python] [pytest arguments]      needs gcc
set -eu
python=${1:-python3}
[ $# -gt 0 ] && shift
root=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R "$root/pkg" "$root/tests" "$root/setup.py" "$root/pyproject.toml" "$root/README.md" "$root/LICENSE" "$copy"
mkdir "$copy/build" "$copy/reports"
# The C files are those of an ordinary build. Their times have to stay, or Cython makes them anew.
cp -pR "$root"/build/cython-*-plain "$copy/build" 2> /dev/null || true
cd "$copy"
find . -name '*.so' -delete
SANITIZE=1 "$python" setup.py -q build_ext --inplace
[ $# -gt 0 ] || set -- tests/test_laws.py tests/test_kafka.py tests/test_kafka_hostile.py tests/test_kafka_resync.py \
    tests/test_checksum.py tests/test_kafka_encode.py tests/test_table.py tests/test_stream.py tests/test_codecs.py \
    tests/test_partition.py tests/test_arrow.py tests/test_kafka_protocol.py tests/test_kafka_streams.py \
    tests/test_kafka_arrays.py tests/test_lumberjack.py tests/test_lumberjack_hostile.py \
    tests/test_lumberjack_encode.py tests/test_lumberjack_conversation.py \
    tests/test_nats.py tests/test_nats_hostile.py tests/test_nats_encode.py \
    tests/test_liftbridge.py tests/test_liftbridge_hostile.py tests/test_liftbridge_encode.py \
    tests/test_liftbridge_payloads.py \
    tests/test_thrift.py tests/test_thrift_hostile.py tests/test_thrift_encode.py tests/test_inflate.py \
    -k "not 4_gib and not 2_gib and not allocated and not bombs and not linear and not too_large \
        and not than_there_is_memory and not 2147483648 and not GiB and not bounded_memory"
# A finding ends its process; the reports go to files, since pytest captures what is printed.
status=0
PYTHONPATH=$copy/pkg:$copy/tests PYTHONMALLOC=malloc WIRESCAN_EXAMPLES=${WIRESCAN_EXAMPLES:-10} \
    LD_PRELOAD=$(gcc -print-file-name=libasan.so) \
    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:log_path=$copy/reports/report \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:log_path=$copy/reports/report \
    "$python" -m pytest -q -n auto -p no:cacheprovider "$@" || status=$?
for report in "$copy"/reports/*; do
    [ ! -e "$report" ] || { cat "$report"; status=1; }
done
exit $status
