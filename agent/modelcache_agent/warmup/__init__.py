"""The warm-up container: a first request to the pod's own server, before anybody else's."""
