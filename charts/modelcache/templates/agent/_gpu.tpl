{{/* What a profile's GPU tier asks of the pod. Experimental. */}}

{{/* Bytes of the profile's GPU tier; nothing if it is off. */}}
{{- define "modelcache.gpuCapacity" -}}
{{- $bytes := include "modelcache.bytes" ((.gpu | default dict).capacity | default "0") -}}
{{- if gt (int64 $bytes) 0 }}{{ $bytes }}{{ end -}}
{{- end }}

{{/* What the memory is. */}}
{{- define "modelcache.gpuDevice" -}}
{{- (.gpu | default dict).device | default "cuda-vmm" -}}
{{- end }}

{{/* Says "yes" if the agents need a card, its driver and the kubelet's word. */}}
{{- define "modelcache.usesCard" -}}
{{- if and (include "modelcache.gpuCapacity" .) (ne (include "modelcache.gpuDevice" .) "emulated") }}yes{{ end -}}
{{- end }}
