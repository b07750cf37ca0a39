"""Weights that the node holds in a device's memory, mapped into this process. Experimental.

    weights = modelcache.gpu.import_weights(layout, descriptors)
    weights.tensor("model.embed_tokens.weight")      # on the device, shared, nothing is copied

Layout and descriptors come from the node's agent. Importing this costs the standard library alone;
the driver's bindings and torch are imported where they are used.
"""

from modelcache.gpu.device_weights import DeviceWeights, import_weights

__all__ = ["DeviceWeights", "import_weights"]
