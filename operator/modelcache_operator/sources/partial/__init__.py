"""Only some tensors of a model: the operator reads the headers once and cuts the files."""
