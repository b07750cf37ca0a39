"""Names of the operator's metrics. Written by the operator, read by Prometheus and dashboards."""

from __future__ import annotations

from typing import Final

RECONCILES: Final = "modelcache_operator_reconciles"
RECONCILE_SECONDS: Final = "modelcache_operator_reconcile_seconds"
QUEUE_DEPTH: Final = "modelcache_operator_queue_depth"
API_REQUESTS: Final = "modelcache_operator_api_requests"
WATCH_EVENTS: Final = "modelcache_operator_watch_events"
GRANT_ANSWERS: Final = "modelcache_operator_grant_answers"
UNREADABLE: Final = "modelcache_operator_unreadable_objects"
PODS_PLACED: Final = "modelcache_operator_pods_placed"
MISSED_SOURCE_CHECKS: Final = "modelcache_operator_missed_source_checks"
CERTIFICATE_EXPIRY: Final = "modelcache_operator_certificate_expiry_timestamp_seconds"
AUTHORITY_ROTATION: Final = "modelcache_operator_authority_rotation_timestamp_seconds"
IS_LEADER: Final = "modelcache_operator_is_leader"

# One series for each object that exists; they vanish with it.
CACHE_READY: Final = "modelcache_cache_ready"
CACHE_REASON: Final = "modelcache_cache_reason"
CACHE_COPIES: Final = "modelcache_cache_copies"
CACHE_TRAFFIC: Final = "modelcache_cache_traffic_percent"
CACHE_DEADLINE: Final = "modelcache_cache_canary_deadline_timestamp_seconds"
CACHE_STARTED: Final = "modelcache_cache_canary_start_timestamp_seconds"
CACHE_ROLLOUT: Final = "modelcache_cache_rollout"
CACHE_ROUTE: Final = "modelcache_cache_route"
CACHE_HELD: Final = "modelcache_cache_held_versions"
VERSION_SOURCE: Final = "modelcache_version_source"
VERSION_REASON: Final = "modelcache_version_reason"
VERSION_READY: Final = "modelcache_version_ready"
NODE_READY: Final = "modelcache_node_ready"
CACHE_REFUSED: Final = "modelcache_cache_quota_exceeded"
QUOTA_USED: Final = "modelcache_quota_used_bytes"
QUOTA_HARD: Final = "modelcache_quota_hard_bytes"
QUOTA_REFUSED: Final = "modelcache_quota_refused"

# One series for each limit of the fleet that is set.
LIMIT_READERS: Final = "modelcache_limit_readers"
LIMIT_WAITING: Final = "modelcache_limit_waiting"
LIMIT_RATE: Final = "modelcache_limit_bytes_per_second"
