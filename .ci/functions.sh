# Functions that all scripts of .ci use. Source this file in bash.

# Many processes import the same files. Python compiles each file once if it may keep the result.
unset PYTHONDONTWRITEBYTECODE

# pip compiles every file that it installs, on one core. Most of them are never imported.
export PIP_COMPILE=0

# Print the heading of a step.
step() {
    printf '\n=== %s\n' "$*"
}

# Print the heading of a step, and the seconds since the script began.
step_with_time() {
    step "$* ($SECONDS s)"
}

# Run a command, and once more if it fails: downloads fail now and then.
retry() {
    if "$@"; then
        return
    fi
    echo "again: $*" >&2
    sleep 5
    "$@"
}
