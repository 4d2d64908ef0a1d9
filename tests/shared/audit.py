"""Whether what is installed beside Millpond has known vulnerabilities; part of `make soak`.

Runs pip-audit in this environment. Ends with 1 where it reports a vulnerability, and says so where
its data cannot be reached: then nothing is known, and the soak goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys

__all__ = ["judge"]

_COMMAND = (
    *(sys.executable, "-m", "pip_audit", "--local", "--skip-editable"),
    *("--format", "json", "--progress-spinner", "off"),
)


def judge(report: str, errors: str) -> tuple[int, str]:
    """Return the exit code and what is to be said, from what pip-audit wrote."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        reason = (errors.strip().splitlines() or ["no answer"])[-1]
        return 0, f"NOT AUDITED: the data about vulnerabilities cannot be reached ({reason})."
    known = [package for package in packages if "vulns" in package]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, "
        f"corrected in {', '.join(found['fix_versions']) or 'no version yet'}"
        for package in known
        for found in package["vulns"]
    ]
    if lines:
        return 1, "\n".join(["Known vulnerabilities:", *lines, "Fix: install the versions named."])
    if not known:
        return 0, (
            "NOT AUDITED: the data about vulnerabilities cannot be reached; the package index "
            f"knows none of {len(packages)} packages."
        )
    unknown = len(packages) - len(known)
    return 0, f"No known vulnerabilities in {len(known)} packages; nothing is known of {unknown}."


def main() -> int:
    done = subprocess.run(_COMMAND, capture_output=True, text=True)
    code, text = judge(done.stdout, done.stderr)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
