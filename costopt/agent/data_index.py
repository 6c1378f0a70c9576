"""What the job's data consist of: an index beside them, or else whatever the store lists."""

from __future__ import annotations

import json

from costopt.agent.data_cache import DataObject
from costopt.domain.errors import StoreError
from costopt.domain.ports import ObjectStore

INDEX = "costopt-data.json"


def list_data_objects(store: ObjectStore) -> tuple[DataObject, ...]:
    """The objects in the order of the index, {"objects": [{"key", "size_bytes", "sha256"}, …]}.

    Without an index every key, of which nothing is known but that it came whole. Raises StoreError.
    """
    told = store.get(INDEX)
    if told is None:
        return tuple(DataObject(key) for key in store.keys(""))
    try:
        return tuple(
            DataObject(str(o["key"]), o.get("size_bytes"), o.get("sha256"))
            for o in json.loads(told)["objects"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"the data's index {INDEX} cannot be read: {error}",
            hint='write {"objects": [{"key": …, "size_bytes": …, "sha256": …}]}',
            code="unreadable",
        ) from error
