"""`modelcache attach|index|wait|drain|bench`: the model of this pod, for people and scripts."""
