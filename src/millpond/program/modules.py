"""Which module a file is: its dotted name, and the folder that must be on the path."""

from __future__ import annotations

from pathlib import Path

__all__ = ["module_of"]


def module_of(file: Path) -> tuple[Path, str]:
    """Return the folder that holds a file's outermost package, and the name of its module.

    A file in a folder without `__init__.py` is a module of its own.

    >>> module_of(Path("/nowhere/app.py"))
    (PosixPath('/nowhere'), 'app')
    """
    folder, names = file.parent, [file.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if names[-1] == "__init__":
        names.pop()
    return folder, ".".join(names)
