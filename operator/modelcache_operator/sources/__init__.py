"""Object stores: list, identify, sign. One module per question; `s3` puts them together."""
