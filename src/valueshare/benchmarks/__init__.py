"""Benchmarks: ratios within one run, with the machine and the versions beside the numbers."""

import sys

from valueshare.runs.provenance import library_versions, machine_line


def versions_line(device: str = "cpu") -> str:
    """Machine and versions, as a benchmark prints them below its table."""
    parts = [machine_line()]
    if device.startswith("cuda"):
        from torch.cuda import get_device_name

        parts.append(get_device_name(device))
    versions = {"Python": sys.version.split()[0], **library_versions()}
    return ", ".join([*parts, *(f"{name} {version}" for name, version in versions.items())])
