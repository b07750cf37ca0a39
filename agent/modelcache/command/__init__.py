"""`modelcache attach|index|wait|bench`: the model of this pod, for people and scripts."""
