{{/* Refuses profiles that could put two agents on one node. */}}
{{- define "modelcache.checkProfiles" -}}
{{- $names := list }}
{{- range $index, $profile := .Values.agent.profiles }}
{{- if has $profile.name $names }}
{{- fail (printf "agent.profiles: two profiles are named %q: rename one" $profile.name) }}
{{- end }}
{{- $names = append $names $profile.name }}
{{- $high := $profile.disk.highWatermark | default 80 | int }}
{{- if and $profile.disk.lowWatermark (ge (int $profile.disk.lowWatermark) $high) }}
{{- fail (printf "agent.profiles: %q has disk.lowWatermark %d, which is not below its highWatermark %d: pressure begins at the high one and ends at the low one" $profile.name (int $profile.disk.lowWatermark) $high) }}
{{- end }}
{{- range $other := slice $.Values.agent.profiles 0 $index }}
{{- if not (include "modelcache.areApart" (dict "one" $profile "other" $other)) }}
{{- fail (printf "agent.profiles: a node may match both %q and %q: give one key of nodeSelector another value in each, or let one exclude with excludeNodes what the other selects" $other.name $profile.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Says "yes" if no node can match both profiles. */}}
{{- define "modelcache.areApart" -}}
{{- $apart := false }}
{{- range $pair := list (list .one .other) (list .other .one) }}
{{- $excluded := (last $pair).excludeNodes | default dict }}
{{- $selected := (last $pair).nodeSelector | default dict }}
{{- range $key, $value := (first $pair).nodeSelector | default dict }}
{{- if and (hasKey $selected $key) (ne (toString (get $selected $key)) (toString $value)) }}{{ $apart = true }}{{ end }}
{{- if has $value (get $excluded $key | default list) }}{{ $apart = true }}{{ end }}
{{- end }}
{{- end }}
{{- if $apart }}yes{{ end }}
{{- end }}

{{/* Where a profile's agents run. Call with (dict "root" $ "profile" $profile). */}}
{{- define "modelcache.agentPlace" -}}
{{- with .profile.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .profile.excludeNodes }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        {{- range $key, $values := . }}
        - key: {{ $key }}
          operator: NotIn
          values:
          {{- toYaml $values | nindent 10 }}
        {{- end }}
{{- end }}
tolerations:
{{ include "modelcache.ownToleration" .root }}
{{- range .root.Values.agent.gpuTaints }}
- key: {{ . }}
  operator: Exists
{{- end }}
{{- range $tolerations := list .root.Values.agent.tolerations .profile.tolerations }}
{{- with $tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
