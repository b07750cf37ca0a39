{{/* The pod of one node. Call with (dict "root" $ "profile" $profile). */}}
{{- define "modelcache.agentPod" -}}
serviceAccountName: modelcache-agent
{{ include "modelcache.podStart" .root }}
{{ include "modelcache.agentPlace" . | trim }}
terminationGracePeriodSeconds: 30
{{- if include "modelcache.usesCard" .profile }}
{{- with .profile.gpu.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}
securityContext:
  # The folder on the node is root's, and fsGroup changes nothing there.
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: {type: RuntimeDefault}
containers:
{{ include "modelcache.agentContainer" . }}
{{- if .root.Values.csi.enabled }}
{{ include "modelcache.csiContainer" . }}
{{- end }}
volumes:
{{- if .root.Values.csi.enabled }}
- name: kubelet
  hostPath: {path: {{ .root.Values.csi.kubeletDir }}, type: Directory}
{{- end }}
- name: store
  hostPath:
    path: {{ .profile.disk.path }}
    type: DirectoryOrCreate
{{- if include "modelcache.usesCard" .profile }}
# Which pod was given which card.
- name: pod-resources
  hostPath: {path: {{ .root.Values.csi.kubeletDir }}/pod-resources, type: Directory}
{{- end }}
- name: grant-token
  projected:
    sources:
    - serviceAccountToken: {path: token, audience: modelcache-grant, expirationSeconds: 3600}
# Made by the operator. Until it is there for the first time, the pod waits and says so.
- name: operator-ca
  configMap: {name: modelcache-ca}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}

{{- define "modelcache.agentContainer" -}}
{{- $values := .root.Values }}
{{- $fetch := .profile.fetch | default dict -}}
{{- $scrub := .profile.scrub | default dict -}}
- name: agent
  image: {{ include "modelcache.image" (dict "root" .root "image" $values.agent.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
  - --node-name=$(NODE_NAME)
  - --namespace={{ .root.Release.Namespace }}
  - --store={{ .profile.disk.path }}
  {{- with .profile.disk.capacity }}
  - --capacity={{ . }}
  {{- end }}
  {{- if include "modelcache.hostCapacity" .profile }}
  - --host-capacity={{ .profile.host.capacity }}
  {{- end }}
  {{- if include "modelcache.gpuCapacity" .profile }}
  - --gpu-capacity={{ .profile.gpu.capacity }}
  - --gpu-device={{ include "modelcache.gpuDevice" .profile }}
  {{- end }}
  - --disk-policy={{ .profile.disk.policy | default "lru" }}
  {{- with .profile.disk.highWatermark }}
  - --disk-high-watermark={{ int . }}
  {{- end }}
  {{- with .profile.disk.lowWatermark }}
  - --disk-low-watermark={{ int . }}
  {{- end }}
  {{- with .profile.disk.inputLog }}
  - --input-log={{ . }}
  {{- end }}
  - --min-residency={{ .profile.disk.minResidency | default "10m" }}
  - --drain-deadline={{ $values.agent.drainDeadline }}
  - --require-mountpoint={{ .profile.disk.requireMountpoint | default false }}
  - --operator-url=https://modelcache-operator.{{ .root.Release.Namespace }}.svc
  - --operator-ca-file=/etc/modelcache/operator-ca/ca.crt
  - --grant-token-file=/var/run/secrets/modelcache/token
  - --streams={{ $fetch.streams | default 4 }}
  - --max-models={{ $fetch.maxModels | default 2 }}
  {{- with $fetch.maxBandwidth }}
  - --max-bandwidth={{ . }}
  {{- end }}
  - --scrub-interval={{ hasKey $scrub "interval" | ternary ($scrub.interval | default "never") "168h" }}
  - --scrub-bandwidth={{ $scrub.maxBandwidth | default "50Mi" }}
  {{- with $values.peers }}
  {{- if .enabled }}
  - --peers=true
  - --peer-address=$(POD_IP)
  - --peer-port={{ .port }}
  - --peer-serves={{ .serves }}
  {{- with .bandwidth }}
  - --peer-bandwidth={{ . }}
  {{- end }}
  {{- end }}
  {{- end }}
  - --log-level={{ $values.agent.logLevel }}
  env:
  - name: NODE_NAME
    valueFrom:
      fieldRef: {fieldPath: spec.nodeName}
  {{- if $values.peers.enabled }}
  - name: POD_IP
    valueFrom:
      fieldRef: {fieldPath: status.podIP}
  {{- end }}
  {{- if include "modelcache.usesCard" .profile }}
  # NVIDIA's container runtime shows the cards without taking them from pods.
  - {name: NVIDIA_VISIBLE_DEVICES, value: all}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}
  {{- end }}
  ports:
  - {name: metrics, containerPort: 9404}
  {{- if $values.peers.enabled }}
  - {name: peers, containerPort: {{ $values.peers.port }}}
  {{- end }}
  livenessProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 10
    failureThreshold: 6
  readinessProbe:
    httpGet: {path: /readyz, port: metrics}
    periodSeconds: 5
  resources:
    {{- include "modelcache.agentResources" . | nindent 4 }}
  securityContext:
    {{- include "modelcache.agentSecurity" .profile | nindent 4 }}
  volumeMounts:
  # The same path as on the node, so that one name means one folder everywhere.
  - {name: store, mountPath: {{ .profile.disk.path }}}
  - {name: grant-token, mountPath: /var/run/secrets/modelcache, readOnly: true}
  - {name: operator-ca, mountPath: /etc/modelcache/operator-ca, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if include "modelcache.usesCard" .profile }}
  - {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
  {{- end }}
{{- end }}
