"""Build the package against the installed wirescan.

The interface is wirescan's .pxd files and the headers beside them.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import wirescan

package = Path(wirescan.__file__).parent
setup(
    name="netstrings",
    packages=["netstrings"],
    entry_points={"wirescan.formats": ["netstrings = netstrings"]},
    ext_modules=cythonize(
        [
            Extension(
                "netstrings.scan", ["netstrings/scan.pyx"], include_dirs=[wirescan.get_include()]
            )
        ],
        include_path=[str(package.parent)],
        compiler_directives={"language_level": 3},
    ),
)
