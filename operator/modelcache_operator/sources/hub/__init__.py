"""`hf://`: model repositories of the hub or a mirror. One module per question.

Only `library`, `conversation` and `connections` know the hub's client; `sources` joins them all and
is loaded with the first hf:// source.
"""
