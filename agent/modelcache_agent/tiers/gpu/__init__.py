"""The GPU tier. Experimental: what drives a real card was run against a stand-in driver only.

Nothing here is imported by the agent's loop yet.
"""
