#!/bin/sh
# Build a copy of this tree under AddressSanitizer and UBSan, and test the kernels in it.
#
# usage: tests/sanitize.sh [--quick] [PYTHON] [PYTEST_ARGUMENT ...]
#
# The default of PYTHON is python3. It needs gcc. --quick leaves out what takes longest.
set -eu
long_files="tests/export/test_column_batches.py tests/laws/test_laws.py tests/kafka/test_protocol.py"
left_out=
if [ "${1:-}" = --quick ]; then
    long_files=
    left_out="and not damage_in_any_chunk and not pieces_of_a_file"
    shift
fi
python=${1:-python3}
[ $# -gt 0 ] && shift
root=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for name in pkg tests setup.py pyproject.toml README.md LICENSE; do
    cp -pR "$root/$name" "$copy"
done
mkdir "$copy/build" "$copy/reports"
# The C files are those of an ordinary build. Cython writes one again if its source is newer.
cp -pR "$root"/build/cython-*-plain "$copy/build" 2> /dev/null || true
cd "$copy"
find . -name '*.so' -delete
SANITIZE=1 "$python" setup.py -q build_ext --inplace
# Left out: what needs too much memory here, and long comparisons of values.
# shellcheck disable=SC2086 # a list of files
[ $# -gt 0 ] || set -- $long_files \
    tests/core/test_checksum.py tests/core/test_inflate.py tests/core/test_libdeflate.py tests/core/test_libzstd.py \
    tests/frames/test_codecs.py tests/frames/test_to_arrow.py \
    tests/export/test_outermost_columns.py tests/reading/test_stream.py \
    tests/decoding/test_avro_values.py tests/decoding/test_json_values.py \
    tests/decoding/test_protobuf_values.py tests/decoding/test_hostile_protobuf.py \
    tests/decoding/test_msgpack_values.py tests/thrift/test_struct_values.py \
    tests/kafka/test_record_batches.py tests/kafka/test_hostile.py tests/kafka/test_resync.py \
    tests/kafka/test_encode.py tests/kafka/test_encode_arrays.py \
    tests/lumberjack/test_scan.py tests/lumberjack/test_hostile.py \
    tests/lumberjack/test_encode.py \
    tests/nats/test_scan.py tests/nats/test_hostile.py tests/nats/test_encode.py \
    tests/pcap/test_scan.py tests/pcap/test_streams.py tests/pcap/test_stream_frames.py \
    tests/pcap/test_fragments.py tests/pcap/test_released.py \
    tests/liftbridge/test_scan.py tests/liftbridge/test_hostile.py \
    tests/liftbridge/test_encode.py tests/liftbridge/test_payloads.py \
    tests/thrift/test_scan.py tests/thrift/test_hostile.py tests/thrift/test_encode.py \
    -k "not 4_gib and not 2_gib and not allocated and not bombs and not linear and not too_large \
        and not than_there_is_memory and not 2147483648 and not GiB and not bounded_memory and not million \
        and not odd_varints and not every_length_of_varints and not depends_on_no_thread \
        and not number_of_threads and not accepted_only_as $left_out"
# A finding ends its process. The reports go to files, because pytest captures what is printed.
report=log_path=$copy/reports/report
status=0
PYTHONPATH=$copy/pkg:$copy PYTHONMALLOC=malloc WIRESCAN_EXAMPLES=${WIRESCAN_EXAMPLES:-10} \
    LD_PRELOAD=$(gcc -print-file-name=libasan.so) \
    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:$report \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:$report \
    "$python" -m pytest -q -n auto -p no:cacheprovider "$@" || status=$?
# Tests with sizes that cannot be allocated make the allocator print a warning.
for file in "$copy"/reports/*; do
    if [ -e "$file" ] && grep -v "WARNING: AddressSanitizer failed to allocate" "$file"; then
        status=1
    fi
done
exit $status
