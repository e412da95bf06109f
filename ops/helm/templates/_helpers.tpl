{{- /* What every pod has: the chart's own settings as .root, those of its part as .of. */}}
{{- define "outlast.pod" -}}
automountServiceAccountToken: false
securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
{{- if .root.Values.imagePullSecrets }}
imagePullSecrets: {{ .root.Values.imagePullSecrets | toJson }}
{{- end }}
{{- if .root.Values.serviceAccountName }}
serviceAccountName: {{ .root.Values.serviceAccountName | toJson }}
{{- end }}
{{- if .of.nodeSelector }}
nodeSelector: {{ .of.nodeSelector | toJson }}
{{- end }}
{{- if .of.tolerations }}
tolerations: {{ .of.tolerations | toJson }}
{{- end }}
{{- if .of.affinity }}
affinity: {{ .of.affinity | toJson }}
{{- end }}
{{- if .of.topologySpreadConstraints }}
topologySpreadConstraints: {{ .of.topologySpreadConstraints | toJson }}
{{- end }}
{{- if .of.priorityClassName }}
priorityClassName: {{ .of.priorityClassName | toJson }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
{{- range .of.volumes }}
  - {{ . | toJson }}
{{- end }}
{{- end }}

{{- /* What every container has, but for its command: .secret has the URL of its role, .probePort is a worker's. */}}
{{- define "outlast.container" -}}
image: {{ .root.Values.image | toJson }}
{{- if .of.envFrom }}
envFrom: {{ .of.envFrom | toJson }}
{{- end }}
env:
  - name: OUTLAST_URL
    valueFrom: {secretKeyRef: {name: {{ .secret | toJson }}, key: url}}
{{- if .probePort }}
  - {name: OUTLAST_PROBE_PORT, value: "{{ .probePort | toJson }}"}
{{- end }}
{{- range .of.env }}
  - {{ . | toJson }}
{{- end }}
{{- if .of.resources }}
resources: {{ .of.resources | toJson }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
{{- range .of.volumeMounts }}
  - {{ . | toJson }}
{{- end }}
{{- end }}

{{- /* The pod of a pool of workers: .name, .of */}}
{{- define "outlast.worker" -}}
metadata:
  labels: {app: {{ .root.Release.Name }}-{{ .name }}}
{{- if .of.annotations }}
  annotations: {{ .of.annotations | toJson }}
{{- end }}
spec:
{{- if .of.untilEmpty }}
  restartPolicy: Never
{{- end }}
  # above --drain-timeout: then attempts are asked to stop, and their ends are handed in
  terminationGracePeriodSeconds: {{ .of.terminationGracePeriodSeconds | toJson }}
{{- include "outlast.pod" . | nindent 2 }}
  containers:
    - name: worker
      args: {{ .of.args | toJson }}
{{- include "outlast.container" (dict "root" .root "of" .of "secret" .root.Values.secrets.worker "probePort" .of.probePort) | nindent 6 }}
      ports:
        - {name: probes, containerPort: {{ .of.probePort | toJson }}}
      startupProbe:  # as long as a runner may take to import the application: 300 s
        httpGet: {path: /startupz, port: probes}
        periodSeconds: 5
        failureThreshold: 66
      readinessProbe:
        httpGet: {path: /readyz, port: probes}
        periodSeconds: 5
        timeoutSeconds: 2
      livenessProbe:  # never fails because the database is away
        httpGet: {path: /livez, port: probes}
        periodSeconds: 10
        timeoutSeconds: 3
        failureThreshold: 3
{{- end }}
