"""What a stage must know of the application; travels to the workers with the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from millpond.program.layouts import Layout
from millpond.program.routes import goes_on
from millpond.state.codec import Codec

__all__ = ["Settings"]

OnError = Literal["stop", "dead-letter"]


@dataclass(frozen=True)
class Settings:
    """What a stage must know of the application."""

    groups: int
    codec: Codec = field(default_factory=Codec)
    on_error: OnError = "stop"
    on_processing_error: Callable[..., bool] | None = None
    payloads: Path | None = None
    """Where records may be left for the next stage; see `payloads`."""
    layouts: dict[str, dict[str, list[Layout]]] = field(default_factory=dict)
    """For each key scope and store the layouts that its states may have, the present one last."""
    loglevel: str | int | None = None
    """From which level on what functions log is shown; None: their logging is left alone."""
    reached: dict[str, int] = field(default_factory=dict)
    """The watermark that each store (scope/store) had reached when the run began."""
    places: Path | None = None
    """Where workers on this machine say what they are at; see `place`."""

    @property
    def goes_on(self) -> str:
        """The setting that lets a run go on after a record that failed; see `routes`."""
        return goes_on(self.on_error, self.on_processing_error)
