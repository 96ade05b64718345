{{- define "promptfed.labels" -}}
app.kubernetes.io/name: promptfed
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "promptfed.url" -}}
{{- if .Values.nats.url }}{{ .Values.nats.url }}{{ else }}{{ ternary "tls" "nats" (ne .Values.tlsSecret "") }}://{{ .Release.Name }}:4222{{ end }}
{{- end }}

{{/* What every pod of the program has: a dictionary of root, command, resources and more, lines of the container. */}}
{{- define "promptfed.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  fsGroup: 65534
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: promptfed
    image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag }}"
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- toYaml .command | nindent 6 }}
    env:
      - {name: XDG_CACHE_HOME, value: /data/cache}
      {{- with .root.Values.tokenSecret }}
      - name: PROMPTFED_TOKEN
        valueFrom: {secretKeyRef: {name: {{ . }}, key: token}}
      {{- end }}
    {{- with .more }}
    {{- . | nindent 4 }}
    {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: experiment, mountPath: /experiment, readOnly: true}
      - {name: data, mountPath: /data}
      - {name: tmp, mountPath: /tmp}
      {{- if .root.Values.tlsSecret }}
      - {name: tls, mountPath: /tls, readOnly: true}
      {{- end }}
volumes:
  - name: experiment
    configMap: {name: {{ .root.Release.Name }}}
  - name: data
    persistentVolumeClaim: {claimName: {{ .root.Release.Name }}}
  - name: tmp
    emptyDir: {}
  {{- with .root.Values.tlsSecret }}
  - name: tls
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
{{- end }}
