{{- define "roster.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "roster.selector" -}}
app.kubernetes.io/name: roster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "roster.labels" -}}
{{ include "roster.selector" . }}
app.kubernetes.io/component: node
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "roster.nodes" -}}
{{ include "roster.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The configuration of one pod: the values' config, and over it what the chart sets. */}}
{{- define "roster.config" -}}
{{- $root := .root }}
{{- $pod := .pod }}
{{- $host := printf "%s.%s" $pod (include "roster.nodes" $root) }}
{{- $identity := dict }}
{{- if eq $root.Values.identity.source "spire" }}
{{- $identity = dict "workload_api" (printf "unix:///spiffe-workload-api/%s" $root.Values.identity.spire.socket) }}
{{- else if eq $root.Values.identity.source "cert-manager" }}
{{- $identity = dict "cert" "/identity/tls.crt" "key" "/identity/tls.key" "bundle" "/identity/ca.crt" }}
{{- else }}
{{- $identity = dict "cert" "/identity/node.pem" "key" "/identity/node.key" "bundle" "/identity/bundle.pem" }}
{{- end }}
{{- $member := dict "id" (printf "spiffe://%s/roster/node/%s" $root.Values.trustDomain $pod) "cluster" (printf "%s:8402" $host) "api" (printf "https://%s:8400" $host) }}
{{- $listen := dict "api" "0.0.0.0:8400" "admin" "127.0.0.1:8401" "cluster" "0.0.0.0:8402" "gossip" "0.0.0.0:8403" "health" "0.0.0.0:8404" "metrics" "0.0.0.0:8405" }}
{{- $set := dict "trust_domain" $root.Values.trustDomain "public_url" $root.Values.publicURL "data" "/data" "listen" $listen "identity" $identity "members" (list $member) "join" (list (printf "%s:8402" (include "roster.nodes" $root))) "bootstrap_expect" $root.Values.bootstrapExpect }}
{{- $gossip := merge (dict "enabled" $root.Values.gossip.enabled) (get $root.Values.config "gossip" | default dict) }}
{{- toYaml (mergeOverwrite (deepCopy $root.Values.config) $set (dict "gossip" $gossip)) }}
{{- end }}
