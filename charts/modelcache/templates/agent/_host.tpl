{{/* What a profile's host tier asks of the container. */}}

{{/* Bytes of the profile's host tier; nothing if it is off. */}}
{{- define "modelcache.hostCapacity" -}}
{{- $bytes := include "modelcache.bytes" ((.host | default dict).capacity | default "0") -}}
{{- if gt (int64 $bytes) 0 }}{{ $bytes }}{{ end -}}
{{- end }}

{{/* A quantity of memory in bytes, rounded up; nothing if it is none. */}}
{{- define "modelcache.bytes" -}}
{{- $text := toString . -}}
{{- if kindIs "float64" . }}{{ $text = printf "%.0f" . }}{{ end -}}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$" $text -}}
{{- $suffix := regexFind "[A-Za-z]*$" $text -}}
{{- $size := float64 (trimSuffix $suffix $text) -}}
{{- $base := ternary 1024.0 1000.0 (hasSuffix "i" $suffix) -}}
{{- range until (get (dict "" 0 "k" 1 "K" 1 "M" 2 "G" 3 "T" 4 "P" 5) (trimSuffix "i" $suffix)) }}{{ $size = mulf $size $base }}{{ end -}}
{{- printf "%.0f" (ceil $size) -}}
{{- end -}}
{{- end }}

{{/* Resources of the agent's container. Call with (dict "root" $ "profile" $profile). */}}
{{- define "modelcache.agentResources" -}}
{{- $resources := deepCopy (.profile.resources | default .root.Values.agent.resources) -}}
{{- $capacity := include "modelcache.hostCapacity" .profile -}}
{{- if $capacity -}}
{{- $limit := (($resources.limits | default dict).memory) -}}
{{- if kindIs "invalid" $limit }}
{{- fail (printf "agent.profiles: %q has host.capacity %s and no resources.limits.memory: set there what the agent needs beside the tier, for example 1Gi; the tier's own memory is added to it" .profile.name .profile.host.capacity) }}
{{- end -}}
{{- $base := include "modelcache.bytes" $limit -}}
{{- if not $base }}
{{- fail (printf "agent.profiles: %q: resources.limits.memory %q is not a quantity of bytes: write for example 1Gi" .profile.name (toString $limit)) }}
{{- end -}}
{{- if lt (int64 $base) 67108864 }}
{{- fail (printf "agent.profiles: %q: resources.limits.memory %s is less than 64Mi: it is what the agent needs beside host.capacity, for example 1Gi" .profile.name (toString $limit)) }}
{{- end -}}
{{- /* Page tables, and pages that are charged while they are locked, come on top of the tier. */ -}}
{{- $total := addf (float64 $base) (mulf (float64 $capacity) 1.15) -}}
{{- $memory := printf "%.0fMi" (ceil (divf $total 1048576.0)) -}}
{{- $_ := set $resources "limits" (merge (dict "memory" $memory) $resources.limits) -}}
{{- $_ := set $resources "requests" (merge (dict "memory" $memory) ($resources.requests | default dict)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* `restricted`, and for a host tier the right to lock its pages. */}}
{{- define "modelcache.agentSecurity" -}}
{{- if include "modelcache.hostCapacity" . -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [IPC_LOCK]}
{{- else -}}
{{ include "modelcache.containerSecurity" . }}
{{- end }}
{{- end }}
