"""API version v1alpha1 of the group modelcache.io."""
