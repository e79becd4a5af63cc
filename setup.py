"""Build every pkg/**/*.pyx as one extension; a new room needs no change here.

DEBUG=1: assertions, symbols, annotated sources. SANITIZE=1: the same under AddressSanitizer and UBSan.
"""
import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = os.environ.get("SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("DEBUG") == "1"

compile_flags, link_flags = (["-O1", "-g"], []) if DEBUG else (["-O3", "-g0"], [])
if SANITIZE:
    # CPython's own flags hold -fwrapv, which would hide a signed overflow from UBSan.
    compile_flags += ["-fsanitize=address,undefined", "-fno-wrapv", "-fno-sanitize-recover=undefined",
                      "-fno-omit-frame-pointer"]
    link_flags += ["-fsanitize=address,undefined"]

PKG = Path("pkg")
# The loops are compiled around their kernels: `inline` has to mean it.
macros = [] if DEBUG or os.name == "nt" else [("CYTHON_INLINE", "__inline__ __attribute__((always_inline))")]

extensions = [
    Extension(".".join(path.relative_to(PKG).with_suffix("").parts), [str(path)],
              extra_compile_args=compile_flags, define_macros=macros, extra_link_args=link_flags,
              depends=[str(header) for header in PKG.rglob("*.h")])
    for path in sorted(PKG.rglob("*.pyx"))
]
setup(ext_modules=cythonize(
    extensions, include_path=[str(PKG)], annotate=DEBUG, build_dir="build/cython",
    compiler_directives={"language_level": 3, "freethreading_compatible": True}))
