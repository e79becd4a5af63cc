"""Build every pkg/**/*.pyx as one extension module.

The modules take Cython's helper code from one module, `wirescan.core.shared`, which Cython
generates. C files and extension modules are kept under build/. A module is compiled again only when
its C code, a header or a flag has changed. Installs, editable installs and wheels share this cache.

Environment variables: DEBUG=1 builds with symbols and annotated sources. SANITIZE=1 builds with
symbols, AddressSanitizer and UBSan. COVERAGE=1 counts executed lines, for gcov. BUILD_CACHE is the
absolute path of another build/. Modules with the same C code, headers and flags are taken from it,
and new ones are stored there.
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
MODULES = Path(os.environ.get("BUILD_CACHE") or "build", "modules")
SHARED = "wirescan.core.shared"
# Modules that are at least 5 % faster with -O3 than with -O2, kernels on lognormal frame sizes.
FASTER_WITH_O3 = {
    "wirescan.core.checksum",
    "wirescan.kafka.record_batches.scan",
    "wirescan.nats.scan",
    "wirescan.thrift.scan",
    "wirescan.thrift.struct_fields",
}
SANITIZE = os.environ.get("SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("DEBUG") == "1"
COVERAGE = os.environ.get("COVERAGE") == "1"
INSTRUMENTED = DEBUG or COVERAGE
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler_flags() -> tuple[list[str], list[str]]:
    """Return (flags for the compiler, flags for the linker)."""
    if os.name == "nt":
        return ["/O2"], []
    if COVERAGE:
        # Unused functions are kept, so that gcov reports them.
        return ["-O0", "-g", "--coverage", "-fkeep-static-functions"], ["--coverage"]
    if not DEBUG:
        return ["-O2", "-g0"], []
    if not SANITIZE:
        return ["-O1", "-g"], []
    sanitizers = "-fsanitize=address,undefined"
    # CPython's flags contain -fwrapv, which hides signed overflow from UBSan.
    checks = ["-fno-wrapv", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    # A report needs the numbers of lines, and no variables: -g takes a third longer.
    return ["-O1", "-g1", sanitizers, *checks], [sanitizers]


def source_size(extension: Extension) -> int:
    """Return the bytes in the sources of an extension."""
    return sum(Path(source).stat().st_size for source in extension.sources)


def remove_stale_modules() -> None:
    """Remove modules beside the sources whose source was renamed or deleted.

    Python could still import them.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for module in PKG.rglob(f"*{suffix}"):
        name = module.name.removesuffix(suffix)
        if name != SHARED.rpartition(".")[2] and not module.with_name(f"{name}.pyx").exists():
            module.unlink()


class CleanBuild(build):
    """A build that first removes an earlier build, so that no deleted module is in the wheel."""

    def run(self) -> None:
        """Remove the earlier build and build."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithCache(build_ext):
    """A build of the extension modules in parallel that compiles only changed modules."""

    def finalize_options(self) -> None:
        """Set the options of the build."""
        super().finalize_options()
        self.parallel = self.parallel or CPUS
        # By its date alone, an older module with other flags would count as up to date.
        self.force = True
        # The largest first, so that no core is left with a large module at the end.
        self.extensions.sort(key=source_size, reverse=True)

    def run(self) -> None:
        """Build all modules; in place, remove stale ones first."""
        if self.inplace or getattr(self, "editable_mode", False):
            remove_stale_modules()
        super().run()

    def build_extension(self, extension: Extension) -> None:
        """Copy a module from the cache, or compile it and store it there."""
        target = Path(self.get_ext_fullpath(extension.name))
        cached = MODULES / self.digest(extension) / target.name
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
        """Return a checksum of everything that the compiled module depends on."""
        content = hashlib.sha256()
        for path in [*extension.sources, *extension.depends]:
            content.update(Path(path).read_bytes())
        flags = [extension.extra_compile_args, extension.extra_link_args, extension.define_macros]
        environment = [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
        python = [
            sysconfig.get_config_var(name) for name in ("EXT_SUFFIX", "CC", "CFLAGS", "MULTIARCH")
        ]
        content.update(
            repr([flags, environment, python, sysconfig.get_paths()["include"]]).encode()
        )
        return content.hexdigest()[:24]


def list_extensions() -> list[Extension]:
    """Return one extension for each .pyx file, and the one that they share."""
    compile_flags, link_flags = compiler_flags()
    # The loops are compiled around their kernels, so the compiler must inline them.
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
    """Generate the C code and run setuptools."""
    annotated = DEBUG and not SANITIZE
    kind = "annotated" if annotated else "plain"
    modules = cythonize(
        list_extensions(),
        nthreads=CPUS,
        include_path=[str(PKG)],
        annotate=annotated,
        # C code of another version of Cython must not be used.
        build_dir=f"build/cython-{Cython.__version__}-{kind}",
        shared_utility_qualified_name=SHARED,
        compiler_directives={"language_level": 3, "freethreading_compatible": True},
    )
    setup(ext_modules=modules, cmdclass={"build": CleanBuild, "build_ext": BuildWithCache})


if __name__ == "__main__":
    main()
