"""Bounds that schema, operator and agents share. Each says what it protects."""

from __future__ import annotations

from typing import Final

# A label value and the last part of a label key hold at most 63 characters.
MAX_NAME_LENGTH: Final = 63
# Entries of one CacheNode: keeps the object far below etcd's 1.5 MiB request limit.
MAX_ENTRIES_PER_NODE: Final = 256
# Labels one agent sets on its Node: Node objects are read by every kubelet and scheduler.
MAX_LABELS_PER_NODE: Final = 64
# Files of one ModelVersion: bounds the manifests and the memory of listing.
MAX_FILES: Final = 10_000
# S3 keys are at most 1,024 bytes; a path below the prefix cannot be longer.
MAX_PATH_BYTES: Final = 1_024
# A file name's limit on ext4 and xfs.
MAX_PATH_PART_BYTES: Final = 255
# Failures shown in one ModelCache's status.
MAX_FAILURES_SHOWN: Final = 8
# A condition's or entry's message.
MAX_MESSAGE_LENGTH: Final = 512
# Nodes that one agent names in its status because they served wrong bytes.
MAX_SUSPECTS: Final = 16
# Steps of one rollout; more are no gradual change but a schedule.
MAX_ROLLOUT_STEPS: Final = 16
# Versions that one ModelCache holds after they have left its spec: the oldest give way.
MAX_HELD_VERSIONS: Final = 4
# PromQL of a gate: longer ones belong into a recording rule.
MAX_QUERY_LENGTH: Final = 2_048
