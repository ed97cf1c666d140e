"""Says what pyproject.toml cannot: which compiled module cffi makes."""

from setuptools import setup

setup(cffi_modules=["mltswitch/hostagent/dataplane/build.py:ffibuilder"])
