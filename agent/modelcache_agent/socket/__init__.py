"""The socket in each pod's volume: progress, weights, demand and indexes for its processes.

Who connects is the pod whose volume the socket lies in: the kubelet said so, and no other pod sees
that folder. Nothing that a client says adds to that.
"""
