"""GPUs in one word: H100, H100:8 or 8xH100."""

from __future__ import annotations

import re

GPUS = re.compile(
    r"(?:([1-9][0-9]{0,4}) ?[x×] ?)?([A-Za-z][A-Za-z0-9 ._-]*[A-Za-z0-9])(?:: ?([1-9][0-9]{0,4}))?"
)


def move_gpus(values: object) -> object:
    """Return the fields of a section with ``gpu: 8xH100`` for ``gpus: 8xH100``."""
    if not isinstance(values, dict) or "gpu" in values:
        return values
    said = values.get("gpus")
    match = GPUS.fullmatch(said) if isinstance(said, str) else None
    if match is None or not (match[1] or match[3]):
        return values
    return {**{name: value for name, value in values.items() if name != "gpus"}, "gpu": said}


def split_gpus(text: str) -> tuple[str, int | None]:
    """Return the model and how many, None where the text does not say it."""
    match = GPUS.fullmatch(text)
    assert match is not None
    count = match[1] or match[3]
    return match[2], int(count) if count else None


def check_gpus(text: str) -> str:
    """Return GPUs in one word. Raise ValueError for another form or an unknown model."""
    from costopt.spec.catalog_names import gpu_model_error

    if GPUS.fullmatch(text) is None:
        raise ValueError("expected a GPU model, and how many: H100, H100:8 or 8xH100")
    if reason := gpu_model_error(split_gpus(text)[0]):
        raise ValueError(reason)
    return text
