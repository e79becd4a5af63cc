"""Build the room against the installed package: its .pxd files are the interface, its headers lie beside them."""
from pathlib import Path

import wirescan
from Cython.Build import cythonize
from setuptools import Extension, setup

package = Path(wirescan.__file__).parent
setup(
    name="netstrings", packages=["netstrings"],
    ext_modules=cythonize(
        [Extension("netstrings.scan", ["netstrings/scan.pyx"], include_dirs=[wirescan.get_include()])],
        include_path=[str(package.parent)], compiler_directives={"language_level": 3}))
