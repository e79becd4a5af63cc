# The groups of checks, one function each. `.ci/run` and `.ci/nightly` call them, and the workflows
# call these two.
#
# usage: source .ci/groups.sh      in bash, in the repository's root
source .ci/functions.sh

PYTEST=(.venv/bin/python -m pytest -q)
HAS_PEERS= # not empty after this run has installed the extra `peers`

# Install Debian packages. Arguments: their names.
install_debian() {
    retry apt-get update -q
    DEBIAN_FRONTEND=noninteractive retry apt-get install -q -y --no-install-recommends "$@"
}

# Install the missing system packages that some groups need. Arguments: names of groups.
prepare_system() {
    local missing=()
    command -v gcc > /dev/null || missing+=(gcc libc6-dev)
    PYTHON=
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            PYTHON=$candidate
            break
        fi
    done
    if [ -z "$PYTHON" ]; then
        PYTHON=python3
        missing+=(python3 python3-venv python3-dev)
    fi
    case " $* " in
        *" peers "* | *" spark "* | *" kills "* | *" bench "* | *" sanitize "*)
            command -v javac > /dev/null || missing+=(openjdk-17-jdk-headless)
            command -v mvn > /dev/null || missing+=(maven)
            command -v go > /dev/null || missing+=(golang-go ca-certificates)
            command -v npm > /dev/null || missing+=(nodejs npm)
            command -v openssl > /dev/null || missing+=(openssl)
            command -v tshark > /dev/null || missing+=(tshark)
            command -v redis-server > /dev/null || missing+=(redis-server)
            [ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
            ;;
    esac
    case " $* " in
        *" peers "*)
            command -v chromium > /dev/null || missing+=(chromium)
            command -v kcat > /dev/null || missing+=(kcat)
            command -v tcpdump > /dev/null || missing+=(tcpdump)
            command -v ip > /dev/null || missing+=(iproute2)
            command -v groff > /dev/null || missing+=(groff)
            ;;
    esac
    case " $* " in
        *" instructions "*) command -v valgrind > /dev/null || missing+=(valgrind) ;;
    esac
    case " $* " in
        *" kills "*) command -v cargo > /dev/null || missing+=(cargo) ;;
    esac
    [ ${#missing[@]} -eq 0 ] || install_debian "${missing[@]}"
    # The README's commands call python3, so python3 must be the interpreter found above.
    local links
    links=$(mktemp -d)
    ln -s "$(command -v "$PYTHON")" "$links/python3"
    export PATH="$links:$PATH"
    "$PYTHON" --version
    gcc --version | head -n 1
}

# Print the command of the README after the comment <!-- $1 -->.
readme_command() {
    sed -n "/<!-- $1 -->/,/^\`\`\`\$/p" README.md | sed -n '/^```sh$/,/^```$/p' | sed '1d;$d'
}

# Run a command of the README. Everything before its last `&&` downloads, and is retried once.
run_readme_command() {
    local command
    command=$(readme_command "$1")
    echo "$command"
    retry bash -euo pipefail -c "${command% && *}"
    bash -euo pipefail -c "${command##* && }"
}

# Make the virtual environment if the README's commands have not made it.
# Argument: `peers` installs that extra too, once in a run.
prepare_environment() {
    if [ ! -x .venv/bin/pytest ]; then
        python3 -m venv .venv
        retry .venv/bin/pip install -q -e '.[test]'
    fi
    if [ "${1:-}" = peers ] && [ -z "$HAS_PEERS" ]; then
        # The extra `test` has Cython and setuptools, so the build needs no environment of its own.
        retry .venv/bin/pip install -q --no-build-isolation -e '.[test,peers]'
        HAS_PEERS=yes
    fi
}

# Run tests with real programs, whose timing varies. Tests that fail run once more, one at a time.
# A test that fails twice fails the group. The output of both runs stays.
# usage: run_with_programs -n PROCESSES -m SELECTION
run_with_programs() {
    local status=0
    "${PYTEST[@]}" --dist loadfile "$@" || status=$?
    # pytest's exit code 1 says that tests failed. Higher codes are errors of the run.
    if [ "$status" -ne 1 ]; then
        return "$status"
    fi
    step "again, alone: the tests that failed"
    "${PYTEST[@]}" --last-failed --last-failed-no-failures none "$@" -n 0
}

group_job() {
    step "the README's first command: install, and convert a directory with Spark"
    rm -rf orders.parquet
    run_readme_command job
    rm -rf orders.parquet
    .venv/bin/wirescan convert tests/corpus/kafka/orders-0 build/ci/local.parquet \
        --engine local --overwrite
}

group_tests() {
    step "the README's second command: install for development, and test"
    run_readme_command tests
}

group_lint() {
    step "lint, types and stubs"
    prepare_environment
    .ci/lint
}

group_slow() {
    step "tests that are slow by nature"
    prepare_environment
    # The group wheel runs the tests of packages outside.
    "${PYTEST[@]}" -n auto -m 'slow and not nightly' --ignore tests/test_outside.py
}

group_peers() {
    step "a lossy link, without which some tests would be skipped"
    prepare_environment peers
    .venv/bin/python -m tests.peers.lossy_link
    step "real clients and servers, from Maven Central, the Go module proxy, npm and PyPI"
    # The tests wait for servers, so a third process uses what two cores have left. Each process may
    # start several brokers, so a machine with more cores needs no more.
    run_with_programs -n 3 -m 'peers and not nightly'
}

group_spark() {
    step "Spark"
    prepare_environment peers
    run_with_programs -n 2 -m 'spark and not nightly'
}

# The seed is fixed, so every run reads the same bytes. The nightly run draws new ones.
group_fuzz() {
    step "hostile bytes, for half a minute"
    prepare_environment
    WIRESCAN_FUZZ_SEED=${WIRESCAN_FUZZ_SEED:-1} WIRESCAN_FUZZ_SECONDS=${WIRESCAN_FUZZ_SECONDS:-30} \
        "${PYTEST[@]}" -m fuzz
}

group_sanitize() {
    step "kernels under AddressSanitizer and UBSan"
    prepare_environment
    bash tests/sanitize.sh --quick "$PWD/.venv/bin/python"
}

group_coverage() {
    step "lines that the tests reach"
    prepare_environment
    .ci/coverage
}

group_mutations() {
    step "planted errors"
    prepare_environment peers
    .venv/bin/python -m tests.planted_errors.run
}

group_wheel() {
    step "sdist and wheel, and packages of other protocols against the wheel"
    # Modules with the same C code, headers and flags are taken from build/ and not compiled again.
    BUILD_CACHE=$PWD/build .ci/wheel build outside
}

group_cross() {
    step "aarch64 under emulation, a sample"
    .ci/cross --quick
}

group_bench() {
    step "the benchmarks start"
    prepare_environment peers
    .venv/bin/python -m bench --quick
}

group_instructions() {
    step "instructions of the kernels, under callgrind"
    prepare_environment peers
    .venv/bin/python -m bench.instructions
}

# Run groups in order, and print the seconds of each. The first failure ends the run.
run_groups() {
    local group start
    local summary=()
    prepare_system "$@"
    for group in "$@"; do
        start=$SECONDS
        "group_$group"
        summary+=("$(printf '%5d s  %s' $((SECONDS - start)) "$group")")
        echo "${summary[-1]}"
    done
    step "all good"
    printf '%s\n' "${summary[@]}"
}
