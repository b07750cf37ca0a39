{{/* Labels of every object. Call with (dict "root" $ "component" "agent"). */}}
{{- define "modelcache.labels" -}}
app.kubernetes.io/name: modelcache
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Labels that select pods; they never change. */}}
{{- define "modelcache.selector" -}}
app.kubernetes.io/name: modelcache
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Call with (dict "root" $ "image" .Values.agent.image). */}}
{{- define "modelcache.image" -}}
{{- $registry := .root.Values.image.registry | trimSuffix "/" -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* What all our pods begin with. */}}
{{- define "modelcache.podStart" -}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* What `restricted` asks of a container. */}}
{{- define "modelcache.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The taint that keeps pods off a fresh node; our own pods must come first. */}}
{{- define "modelcache.ownToleration" -}}
- key: modelcache.io/agent-not-ready
  operator: Exists
{{- end }}

{{/* How the API server calls an account. Call with (dict "root" $ "account" "modelcache-agent"). */}}
{{- define "modelcache.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ .account }}
{{- end }}
