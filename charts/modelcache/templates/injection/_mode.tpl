{{/* policy, webhook or none. */}}
{{- define "modelcache.injectionMode" -}}
{{- $mode := .Values.injection.mode -}}
{{- $has := or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- if and (eq $mode "policy") (not $has) }}
{{- fail "injection.mode: policy needs MutatingAdmissionPolicy v1 (Kubernetes 1.36): use auto or webhook" }}
{{- end -}}
{{- if and (not .Values.csi.enabled) (ne $mode "none") }}
{{- fail "injection.mode: pods would get a volume that nobody mounts: enable csi, or set none" }}
{{- end -}}
{{- if eq $mode "auto" }}{{ ternary "policy" "webhook" $has }}{{ else }}{{ $mode }}{{ end -}}
{{- end }}
