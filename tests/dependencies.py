"""Ask PyPI's database of vulnerabilities about the packages that are installed here: `make audit-dependencies`.

The status is 1 if a package has a known vulnerability.  Where the database cannot be reached nothing is audited, which
is said, and the status is 0: that is no defect of this project.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

COMMAND = ["-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off", "--format", "json"]
NO_CONNECTION = ("ConnectionError", "ProxyError", "SSLError", "Timeout")
"""How the errors of the library requests are called."""

UNREACHED = (
    "Nothing was audited: PyPI's database of vulnerabilities cannot be reached from here, or the mirror in its place "
    "has none. Run this again where https://pypi.org can be reached."
)


def verdict(report: Mapping[str, Any]) -> tuple[str, int]:
    """What to say of a report of pip-audit, and the exit status.

    A mirror that has packages and no database answers too: pip-audit then passes over every package and is content.
    """
    asked = [package for package in report["dependencies"] if "vulns" in package]
    passed = [package["name"] for package in report["dependencies"] if "vulns" not in package]
    if not asked:
        return UNREACHED, 0
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package in asked
        for found in package["vulns"]
    ]
    told = f"Packages audited: {len(asked)}. Known vulnerabilities: {len(lines)}."
    if passed:
        told += f" Not audited: {', '.join(passed)}."
    return "\n".join([*lines, told]), int(bool(lines))


def main() -> None:
    """Audit this environment."""
    done = subprocess.run([sys.executable, *COMMAND], capture_output=True, text=True, check=False)
    if done.stdout:
        told, status = verdict(json.loads(done.stdout))
    elif any(name in done.stderr for name in NO_CONNECTION):
        told, status = UNREACHED, 0
    else:
        told, status = f"pip-audit failed: {done.stderr.strip()}", 1
    print(told)
    sys.exit(status)


if __name__ == "__main__":
    main()
