// Package deploy checks the files of deploy/ by the tools that read them: buildah,
// compose-go, Helm, Kubernetes' OpenAPI documents, systemd-analyze, promtool and
// Prometheus. It is a module of its own, so that nothing of this is a requirement of the
// product. .ci/deploy installs the tools and runs it; a test whose tool is missing is skipped
// and says so.
//
// Services, units and manifests can't be started as such where there is no Docker, systemd
// or cluster. Their commands are started instead, as processes from the unpacked image, on
// loopback addresses.
package deploy
