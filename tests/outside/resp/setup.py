"""Build the kernels against the .pxd files and headers of the installed wirescan."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import wirescan

modules = [
    Extension(f"wirescan_resp.{path.stem}", [str(path)], include_dirs=[wirescan.get_include()])
    for path in sorted(Path("wirescan_resp").glob("*.pyx"))
]
setup(
    ext_modules=cythonize(
        modules,
        include_path=[str(Path(wirescan.__file__).parents[1])],
        compiler_directives={"language_level": 3},
    )
)
