"""Says what pyproject.toml cannot: which compiled module cffi makes, and for which Pythons it is."""

from setuptools import setup

setup(
    cffi_modules=["mltswitch/hostagent/dataplane/build.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
