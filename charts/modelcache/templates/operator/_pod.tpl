{{/* Who runs the operator's image passes Pod Security `restricted`. */}}
{{- define "modelcache.operatorPodSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "modelcache.operatorPlace" -}}
{{- with .Values.operator.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
{{ include "modelcache.ownToleration" $ }}
{{- with .Values.operator.tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One replica beside the other only where there is no other place. */}}
{{- define "modelcache.spread" -}}
topologySpreadConstraints:
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ $key }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "modelcache.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
