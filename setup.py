"""Build every pkg/**/*.pyx as one extension module.

The modules take Cython's helper code from one module, `wirescan.core.shared`, which Cython generates.
C files and extension modules are kept under build/, so a module is compiled again only when its C
code, a header or a flag has changed. Installs, editable installs and wheels share them.

DEBUG=1 builds with symbols and annotated sources. SANITIZE=1 builds with symbols, AddressSanitizer
and UBSan. COVERAGE=1 counts executed lines, for gcov.
"""

import hashlib
import os
import shutil
import sysconfig
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

PKG = Path("pkg")
SHARED = "wirescan.core.shared"
# Kernels that run at least 5 % faster with -O3 than with -O2, as timed on lognormal sizes.
FASTER_WITH_O3 = {"wirescan.kafka.scan", "wirescan.nats.scan", "wirescan.thrift.scan"}
SANITIZE = os.environ.get("SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("DEBUG") == "1"
COVERAGE = os.environ.get("COVERAGE") == "1"
INSTRUMENTED = DEBUG or COVERAGE
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler_flags() -> tuple[list[str], list[str]]:
    """The flags to compile and to link with."""
    if os.name == "nt":
        return ["/O2"], []
    if COVERAGE:
        # Functions that nothing calls are kept, so that gcov reports them.
        return ["-O0", "-g", "--coverage", "-fkeep-static-functions"], ["--coverage"]
    if not DEBUG:
        return ["-O2", "-g0"], []
    if not SANITIZE:
        return ["-O1", "-g"], []
    sanitizers = "-fsanitize=address,undefined"
    # CPython's own flags hold -fwrapv, which would hide a signed overflow from UBSan.
    checks = ["-fno-wrapv", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    return ["-O1", "-g", sanitizers, *checks], [sanitizers]


def source_size(extension: Extension) -> int:
    return sum(Path(source).stat().st_size for source in extension.sources)


class CleanBuild(build):
    """Remove what an earlier build left, so that no deleted module gets into a wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithCache(build_ext):
    """Compile the extension modules side by side, and only those that changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CPUS
        # An older module with other flags must not be taken for this one, as its date alone allows.
        self.force = True
        # The longest first, so that no core is left with a long one at the end.
        self.extensions.sort(key=source_size, reverse=True)

    def build_extension(self, extension: Extension) -> None:
        target = Path(self.get_ext_fullpath(extension.name))
        cached = Path("build", "modules", self.digest(extension), target.name)
        if cached.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(cached, target)
            return
        super().build_extension(extension)
        cached.parent.mkdir(parents=True, exist_ok=True)
        unfinished = cached.with_suffix(f".{os.getpid()}")
        shutil.copy2(target, unfinished)
        unfinished.replace(cached)

    def digest(self, extension: Extension) -> str:
        """A name for everything that decides what the compiled module holds."""
        content = hashlib.sha256()
        for path in [*extension.sources, *extension.depends]:
            content.update(Path(path).read_bytes())
        flags = [extension.extra_compile_args, extension.extra_link_args, extension.define_macros]
        environment = [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
        python = [sysconfig.get_config_var(name) for name in ("EXT_SUFFIX", "CC", "CFLAGS", "MULTIARCH")]
        content.update(repr([flags, environment, python, sysconfig.get_paths()["include"]]).encode())
        return content.hexdigest()[:24]


def list_extensions() -> list[Extension]:
    """One extension for each .pyx file, and the one that they share."""
    compile_flags, link_flags = compiler_flags()
    # The loops are compiled around their kernels: `inline` has to mean it.
    always_inline = ("CYTHON_INLINE", "__inline__ __attribute__((always_inline))")
    options = {
        "define_macros": [] if INSTRUMENTED or os.name == "nt" else [always_inline],
        "extra_compile_args": compile_flags,
        "extra_link_args": link_flags,
        "depends": sorted(str(header) for header in PKG.rglob("*.h")),
    }
    shared_source = PKG.joinpath(*SHARED.split(".")).with_suffix(".c")
    extensions = [Extension(SHARED, [str(shared_source)], **options)]
    for path in sorted(PKG.rglob("*.pyx")):
        name = ".".join(path.relative_to(PKG).with_suffix("").parts)
        extension = Extension(name, [str(path)], **options)
        if name in FASTER_WITH_O3 and "-O2" in compile_flags:
            extension.extra_compile_args = [*compile_flags, "-O3"]
        extensions.append(extension)
    return extensions


def main() -> None:
    annotated = DEBUG and not SANITIZE
    kind = "annotated" if annotated else "plain"
    modules = cythonize(
        list_extensions(),
        nthreads=CPUS,
        include_path=[str(PKG)],
        annotate=annotated,
        # What another version of Cython generated must not be taken for this one's.
        build_dir=f"build/cython-{Cython.__version__}-{kind}",
        shared_utility_qualified_name=SHARED,
        compiler_directives={"language_level": 3, "freethreading_compatible": True},
    )
    setup(ext_modules=modules, cmdclass={"build": CleanBuild, "build_ext": BuildWithCache})


if __name__ == "__main__":
    main()
