{{/* Mounts the volumes of pods: a container of its own, because unmounting never needs the agent. */}}
{{- define "modelcache.csiContainer" -}}
{{- $values := .root.Values -}}
- name: csi
  image: {{ include "modelcache.image" (dict "root" .root "image" $values.agent.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
  - csi
  - --node-name=$(NODE_NAME)
  - --store={{ .profile.disk.path }}
  - --kubelet-dir={{ $values.csi.kubeletDir }}
  - --log-level={{ $values.agent.logLevel }}
  env:
  - name: NODE_NAME
    valueFrom:
      fieldRef: {fieldPath: spec.nodeName}
  resources:
    {{- toYaml $values.csi.resources | nindent 4 }}
  securityContext:
    # Kubernetes lets only privileged containers pass mounts on to the node.
    privileged: true
    readOnlyRootFilesystem: true
  volumeMounts:
  - {name: store, mountPath: {{ .profile.disk.path }}}
  - {name: kubelet, mountPath: {{ $values.csi.kubeletDir }}, mountPropagation: Bidirectional}
  - {name: tmp, mountPath: /tmp}
{{- end }}
