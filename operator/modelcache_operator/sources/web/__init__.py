"""`https://` and `http://`: files of plain web servers. One module per question.

A web server lists nothing, so the files are one that the URI names, those of a checksum file, or
those that the spec lists. Sizes and identities come from HEAD; agents read the same addresses.
"""
