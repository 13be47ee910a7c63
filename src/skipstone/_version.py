"""The version of the package: a module of its own, so that nothing imports the package for it."""

__version__ = "0.1.0"
