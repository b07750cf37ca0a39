"""The CustomResourceDefinitions as templates: with a switch, and kept on uninstall."""

from __future__ import annotations

from typing import Final

from modelcache_api.crdgen import render_crds

_SWITCH: Final = "{{- if .Values.crds.install }}\n"
_END: Final = "{{- end }}\n"
_NAME: Final = "metadata:\n  name: {name}\n"
# Text, not parsed objects: Helm's own parser would turn large integers into floats.
_KEPT: Final = """\
metadata:
  name: {name}
  labels:
    {{{{- include "modelcache.labels" (dict "root" $) | nindent 4 }}}}
  annotations:
    # Deleting a definition deletes every object of its kind.
    helm.sh/resource-policy: keep
"""


def render_crd_templates() -> dict[str, str]:
    """File name to template, for all kinds.

    Raises:
        ValueError: a definition does not have the expected form.
    """
    return {file: _wrap(file, text) for file, text in render_crds().items()}


def _wrap(file: str, text: str) -> str:
    group, _, plural = file.removesuffix(".yaml").partition("_")
    name = f"{plural}.{group}"
    head = _NAME.format(name=name)
    if text.count(head) != 1 or "{{" in text:
        raise ValueError(f"{file} cannot be made a template")
    return _SWITCH + text.replace(head, _KEPT.format(name=name)) + _END
