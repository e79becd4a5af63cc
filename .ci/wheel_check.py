"""Check one wheel: its files, its size, and that no file is bound to one CPU.

usage: wheel_check.py WHEEL
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

# Bytes of all extension modules, so that no growth goes unnoticed. The decoders have 0.5 MB,
# the readers of other storages and backups of Kafka's records 0.3 MB, and captures 0.2 MB.
MODULES_LIMIT = 5_150_000
# Modules that choose between instruction sets when they are loaded. Only they may contain
# instructions that some x86-64 processors lack.
DISPATCHING = {"wirescan.core.checksum", "wirescan.kafka.record_batches.record_fast_bmi2"}
# Instructions beyond the x86-64 baseline: AVX and later, BMI, POPCNT, CRC32, PCLMUL, SSE3 to
# SSE4.2.
BEYOND_BASELINE = re.compile(
    r"v[a-z0-9]+|pdep|pext|bzhi|mulx|rorx|s[ahlr]{2}x|andn|bextr|bls[ir]|blsmsk|tzcnt|lzcnt|popcnt"
    r"|movbe|crc32[bwlq]?|pclmul\w*|aes\w+|sha\w+|pshufb|palignr|pmull[du]|p(min|max)(u[dw]|s[bd])"
    r"|pblend\w+|ptest|pcmpeqq|pcmpgtq|p(cmpi|cmpe)str[im]|pinsr[bdq]|pextr[bdq]|pmov[sz]x\w+"
)
# These begin with "v" but are part of the baseline, or stop the processor.
BASELINE = {"verr", "verw"}
# Baseline processors run TZCNT's bytes as BSF. Compilers emit them only if both results agree.
RUNS_ANYWHERE = {"tzcnt"}
# Functions that run when a module is loaded, before it chooses an instruction set.
AT_LOAD = re.compile(r"PyInit_.*|__pyx_pymod_.*|__Pyx_.*|_init|_start|frame_dummy")
FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:")
INSTRUCTION = re.compile(r"\s+[0-9a-f]+:\s+(?:(?:rep\w*|lock|bnd|notrack|data16) )*(\S+)")
REQUIRED = ("py.typed", "core/fault.pyi", "core/loop.pxd", "core/bits.h", "spark/log4j2.properties")


def module_name(path: str) -> str:
    """Return the module of an extension module's path inside the wheel."""
    folder, _, file = path.rpartition("/")
    return f"{folder.replace('/', '.')}.{file.split('.')[0]}"


def instructions(file: Path) -> dict[str, set[str]]:
    """Return the mnemonics in each function of an extension module."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(file)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions: dict[str, set[str]] = {}
    for line in listing.splitlines():
        if heading := FUNCTION.fullmatch(line):
            mnemonics = functions.setdefault(heading[1], set())
        elif instruction := INSTRUCTION.match(line):
            mnemonics.add(instruction[1])
    return functions


def bound_to_cpu(file: Path) -> dict[str, set[str]]:
    """Return the functions with instructions that some x86-64 processors lack, with these."""
    bound = {}
    for function, mnemonics in instructions(file).items():
        beyond = {name for name in mnemonics if BEYOND_BASELINE.fullmatch(name)}
        beyond -= BASELINE | RUNS_ANYWHERE
        if beyond:
            bound[function] = beyond
    return bound


def check(wheel: Path) -> list[str]:
    """Print the wheel's sizes and tag, and return what is wrong with it."""
    faults = []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        files = {entry.filename: entry.file_size for entry in archive.infolist()}
        modules = [path for path in files if path.endswith((".so", ".pyd"))]
        for path in REQUIRED:
            if f"wirescan/{path}" not in files:
                faults.append(f"wirescan/{path} is missing")
        strangers = [path for path in files if path.endswith((".pyx", ".c", ".o"))]
        strangers += [path for path in files if path.split("/")[0].startswith(("tests", "bench"))]
        for path in strangers:
            faults.append(f"{path} does not belong into a wheel")
        total = sum(files[path] for path in modules)
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(files)} files")
        print(f"{len(modules)} extension modules: {total:,} bytes, at most {MODULES_LIMIT:,}")
        if not modules:
            faults.append("the wheel holds no extension module")
        if total > MODULES_LIMIT:
            faults.append(
                f"the extension modules have {total:,} bytes, more than {MODULES_LIMIT:,}"
            )
        if not wheel.name.endswith("x86_64.whl"):
            return faults
        dispatching = 0
        for path in modules:
            file = Path(archive.extract(path, folder))
            found = bound_to_cpu(file)
            name = module_name(path)
            dispatching += bool(found) and name in DISPATCHING
            for function, names in found.items():
                if name not in DISPATCHING or AT_LOAD.fullmatch(function):
                    used = ", ".join(sorted(names)[:5])
                    faults.append(f"{path}: {function} needs a newer CPU, for {used}")
        if dispatching != len(DISPATCHING):
            # The compiler omitted a fast path, or the disassembly could not be read.
            faults.append(f"only {dispatching} of {len(DISPATCHING)} modules have their fast paths")
        print(
            f"instructions beyond the x86-64 baseline: {dispatching} modules, "
            "which choose at run time"
        )
    return faults


def compiler_flags_bound_to_cpu() -> list[str]:
    """Return the flags of this Python's own build that would bind every module to a CPU."""
    flags = f"{sysconfig.get_config_var('CFLAGS')} {sysconfig.get_config_var('OPT')}".split()
    return [flag for flag in flags if flag.startswith(("-march=", "-mcpu=", "-mavx", "-msse4"))]


def main() -> int:
    """Check the wheel that the command line names, and return the exit code."""
    faults = check(Path(sys.argv[1]))
    faults += [f"this Python compiles with {flag}" for flag in compiler_flags_bound_to_cpu()]
    for fault in faults:
        print(f"wheel_check: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
