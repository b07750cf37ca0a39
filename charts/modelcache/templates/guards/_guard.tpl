{{/* The node that a token is bound to, as the API server says; empty without one. */}}
{{- define "modelcache.claims" -}}
- name: node
  expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
- name: nodeUid
  expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-uid'][?0].orValue('')
{{- end }}

{{/* Labels before and after. */}}
{{- define "modelcache.nodeLabels" -}}
- name: labels
  expression: "object == null ? {} : object.metadata.?labels.orValue({})"
- name: oldLabels
  expression: "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})"
{{- end }}

{{/* Call with (dict "root" $ "accounts" (list "modelcache-agent")). */}}
{{- define "modelcache.isAccount" -}}
request.userInfo.username in [
{{- range $index, $account := .accounts -}}
{{ if $index }}, {{ end }}'{{ include "modelcache.user" (dict "root" $.root "account" $account) }}'
{{- end -}}
]
{{- end }}

{{/* Everybody but the accounts, and but the groups that the administrator exempts. */}}
{{- define "modelcache.isUser" -}}
- name: others
  expression: "!({{ include "modelcache.isAccount" . }})"
{{- range .root.Values.guards.exemptGroups }}
- name: exempt-{{ . | replace ":" "-" | lower }}
  expression: "!('{{ . }}' in request.userInfo.?groups.orValue([]))"
{{- end }}
{{- end }}

{{/* Call with (dict "root" $ "name" "..."). */}}
{{- define "modelcache.guardBinding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "modelcache.labels" (dict "root" .root "component" "guards") | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}

{{/* Call with (dict "root" $ "name" "..."). */}}
{{- define "modelcache.guardHead" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "modelcache.labels" (dict "root" .root "component" "guards") | nindent 4 }}
{{- end }}
