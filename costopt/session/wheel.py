"""costopt itself as a wheel for nodes, from the package that runs here, installed or not."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path

import costopt
from costopt.domain.errors import DISTRIBUTION

STEM = f"{DISTRIBUTION.replace('-', '_')}-{costopt.__version__}"
"""As wheels and their metadata are named (packaging.python.org, "Binary distribution format")."""
TIME = (1980, 1, 1, 0, 0, 0)
"""The oldest that a zip can hold: the same content gives the same bytes."""
NEEDED = ("nvidia-ml-py", "obstore", "xxhash")
"""What agent, store and training runtime import beside PyTorch, which the node's image brings."""


def wheel_name() -> str:
    """As pip wants it."""
    return f"{STEM}-py3-none-any.whl"


def node_requirements() -> tuple[str, ...]:
    """What nodes need beside the wheel, in the versions of this machine where it has them."""
    return tuple(_pinned(name) for name in NEEDED)


def write_wheel(target: Path) -> None:
    """Write the wheel to ``target``. It names no requirements: nodes need few of ours."""
    package = Path(costopt.__file__).parent
    info = f"{STEM}.dist-info"
    record: list[str] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"costopt/{path.relative_to(package).as_posix()}"
                record.append(_add(archive, name, path.read_bytes()))
        about = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {costopt.__version__}\n"
        record.append(_add(archive, f"{info}/METADATA", about.encode()))
        wheel = "Wheel-Version: 1.0\nGenerator: costopt\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        record.append(_add(archive, f"{info}/WHEEL", wheel.encode()))
        record.append(f"{info}/RECORD,,")
        _add(archive, f"{info}/RECORD", ("\n".join(record) + "\n").encode())


def _pinned(name: str) -> str:
    try:
        return f"{name}=={metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> str:
    entry = zipfile.ZipInfo(name, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"
