"""Builds the native library with g++; everything else is in pyproject.toml.

    python setup.py build_ext --inplace
    pip install -e . --no-build-isolation
"""

import os
import shutil
import sys

import setuptools
from setuptools.command.build_ext import build_ext

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tools import cxx, native  # noqa: E402


class BuildOps(build_ext):
    """Hands the one extension to tools/native.py, which compiles only what has changed."""

    def get_ext_filename(self, fullname: str) -> str:
        # An op library, not a Python module: no ABI tag in its name.
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext: setuptools.Extension) -> None:
        try:
            built = native.build()
        except cxx.BuildError as error:
            raise SystemExit(f"tfadaptcp: {error}") from None
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        for suffix in (".so", ".json"):
            shutil.copy2(built.with_suffix(suffix), _with_suffix(target, suffix))

    def copy_extensions_to_source(self) -> None:
        # Replaced, never written into: a running process may have the old library loaded.
        for ext in self.extensions:
            built = os.path.join(self.build_lib, self.get_ext_filename(ext.name))
            target = self.get_filename_in_source(ext.name)
            for suffix in (".so", ".json"):
                partial = target + ".partial"
                shutil.copy2(_with_suffix(built, suffix), partial)
                os.replace(partial, _with_suffix(target, suffix))

    def get_filename_in_source(self, name: str) -> str:
        """Where the library belongs in the source tree."""
        return os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            self.get_ext_filename(name))


def _with_suffix(path: str, suffix: str) -> str:
    return os.path.splitext(path)[0] + suffix


setuptools.setup(
    ext_modules=[setuptools.Extension("tfadaptcp._adaptcp_ops", sources=[])],
    cmdclass={"build_ext": BuildOps},
)
