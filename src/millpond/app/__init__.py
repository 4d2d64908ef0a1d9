"""The face of a program, and what runs it: `Application`."""

from millpond.app.application import Application

__all__ = ["Application"]
