"""What people ask of an application that it does not have, and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millpond.arguments.callsite import here
from millpond.arguments.hints import missing, public
from millpond.errors import ConfigError, MillpondError

__all__ = ["NotHere"]

_HINTS = {
    "add_source": "app.dataframe(source=...) reads a list, files, a rate, Spark, or a mp.Source.",
    "is_quix_app": "there is no Quix Cloud here.",
    "setup_topics": "leave it out: topics that are missing are made when the program starts.",
    "dataframes": "app.explain() shows what was built.",
}


class NotHere:
    """Refuses, with a fix: to travel to workers, and names of Quix Streams or misspelt ones."""

    def __reduce__(self) -> NoReturn:
        msg = (
            "a function that runs in workers refers to the application itself, which stays on the "
            "driver.\nFix: pass it what it needs: the topic, a number, a name."
        )
        raise MillpondError(msg)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("an application", name, public(type(self)), _HINTS)

        @classmethod
        def Quix(cls, *_: Any, **__: Any) -> NoReturn:
            """Say what to call instead: programs of Quix Streams have this."""
            msg = f"there is no Quix Cloud here ({here()})."
            raise ConfigError(f"{msg}\nFix: Application(broker_address=...).")
