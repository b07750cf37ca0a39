{{/*
Objects that are defined in files, where the test bed and the tests use them too. Call with
(dict "root" $ "text" "..." "component" "..."): names of the release's namespace and labels are put in.
*/}}
{{- define "modelcache.documents" -}}
{{- $text := replace "modelcache-system" .root.Release.Namespace .text }}
{{- $labels := fromYaml (include "modelcache.labels" .) }}
{{- range $part := splitList "\n---\n" $text }}
{{- $document := fromYaml $part }}
{{- if ne $document.kind "Namespace" }}
---
{{ mergeOverwrite $document (dict "metadata" (dict "labels" $labels)) | toYaml }}
{{- end }}
{{- end }}
{{- end }}
