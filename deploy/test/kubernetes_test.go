package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// kubernetesModule has the OpenAPI documents of Kubernetes' API.
const kubernetesModule = "k8s.io/kubernetes@v1.37.2"

// kubeVersion is that of the cluster for which Helm renders.
const kubeVersion = "1.37.2"

// helm returns Helm's path: HELM, or from the PATH.
func helm(t *testing.T) string {
	t.Helper()

	if given := os.Getenv("HELM"); given != "" {
		return given
	}

	return tool(t, "helm")
}

// cases returns the values files by the name of their case.
func cases(t *testing.T) map[string]string {
	t.Helper()

	all := map[string]string{}
	for _, file := range glob(t, "../helm/values/*.yaml") {
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}

	return all
}

// rendered returns the manifests of a values file.
func rendered(t *testing.T, file string, more ...string) string {
	t.Helper()

	args := append([]string{"template", "roster", "../helm/roster", "--values", file, "--kube-version", kubeVersion},
		more...)

	return run(t, exec.Command(helm(t), args...))
}

// documents returns the documents of a YAML file as JSON values.
func documents(t *testing.T, text string) []map[string]any {
	t.Helper()

	var all []map[string]any

	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document map[string]any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}

		if document != nil {
			all = append(all, document)
		}
	}
}

// openAPI returns the folder with Kubernetes' OpenAPI documents.
var openAPI = sync.OnceValues(func() (string, error) {
	download := exec.Command("go", "mod", "download", "-json", kubernetesModule)
	download.Env = append(os.Environ(), "GOFLAGS=-mod=mod")

	out, err := download.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", kubernetesModule, err, out)
	}

	var module struct{ Dir string }
	err = json.Unmarshal(out, &module)

	return filepath.Join(module.Dir, "api/openapi-spec/v3"), err
})

// refuseUnknown makes each schema with properties refuse others.
func refuseUnknown(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		_, has := schema["properties"].(map[string]any)
		if _, said := schema["additionalProperties"]; has && !said {
			schema["additionalProperties"] = false
		}

		for _, each := range schema {
			refuseUnknown(each)
		}
	case []any:
		for _, each := range schema {
			refuseUnknown(each)
		}
	}
}

// kubernetesSchema returns the schema of a kind, with unknown members refused.
func kubernetesSchema(t *testing.T, apiVersion, kind string) *jsonschema.Schema {
	t.Helper()

	dir, err := openAPI()
	if err != nil {
		t.Skipf("Kubernetes' OpenAPI documents can't be had: %v", err)
	}

	group, version, ok := strings.Cut(apiVersion, "/")
	file := "apis__" + group + "__" + version + "_openapi.json"

	if !ok {
		group, version, file = "", apiVersion, "api__"+apiVersion+"_openapi.json"
	}

	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatalf("Kubernetes has no API %s: %v", apiVersion, err)
	}

	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)

	refuseUnknown(document)

	schemas := document.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for name, schema := range schemas {
		kinds, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, each := range kinds {
			is := each.(map[string]any)
			if is["group"] != group || is["version"] != version || is["kind"] != kind {
				continue
			}

			compiler := jsonschema.NewCompiler()
			compiler.DefaultDraft(jsonschema.Draft4) // OpenAPI 3.0's nearest

			must(t, compiler.AddResource("file:///"+file, document))

			compiled, err := compiler.Compile("file:///" + file + "#/components/schemas/" + name)
			must(t, err)

			return compiled
		}
	}

	t.Fatalf("Kubernetes has no kind %s %s", apiVersion, kind)

	return nil
}

// checkManifest validates a manifest by Kubernetes' documents, or by the types of the
// operator whose kind it is.
func checkManifest(t *testing.T, manifest map[string]any) error {
	t.Helper()

	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}

	apiVersion, _ := manifest["apiVersion"].(string)
	kind, _ := manifest["kind"].(string)

	switch apiVersion + " " + kind {
	case "monitoring.coreos.com/v1 ServiceMonitor":
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()

		return decoder.Decode(new(monitoring.ServiceMonitor))
	case "spire.spiffe.io/v1alpha1 ClusterSPIFFEID":
		return checkClusterSPIFFEID(manifest)
	}

	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}

	return kubernetesSchema(t, apiVersion, kind).Validate(instance)
}

// checkClusterSPIFFEID checks the members of a ClusterSPIFFEID, whose types come with the whole
// of SPIRE's controller manager.
func checkClusterSPIFFEID(manifest map[string]any) error {
	known := map[string]bool{"spiffeIDTemplate": true, "dnsNameTemplates": true, "namespaceSelector": true,
		"podSelector": true, "federatesWith": true}

	spec, _ := manifest["spec"].(map[string]any)
	for key := range spec {
		if !known[key] {
			return fmt.Errorf("ClusterSPIFFEID has no %s", key)
		}
	}

	if spec["spiffeIDTemplate"] != "spiffe://{{ .TrustDomain }}/roster/node/{{ .PodMeta.Name }}" {
		return fmt.Errorf("the template is %v", spec["spiffeIDTemplate"])
	}

	return nil
}

// Requirement: OPS-010, OPS-027
func TestTheChartIsClean(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			run(t, exec.Command(helm(t), "lint", "--strict", "--kube-version", kubeVersion, "--values", file,
				"../helm/roster"))
		})
	}

	for _, bad := range []string{"trustDomain=Alpha Test", "replicas=0", "bootstrapExpect=2", "identity.source=vault",
		"publicURL=http://ad.alpha.example", "unknown=1"} {
		out, err := exec.Command(helm(t), "template", "roster", "../helm/roster", "--kube-version", kubeVersion,
			"--values", "../helm/values/files.yaml", "--set", bad).CombinedOutput()
		if err == nil {
			t.Errorf("the chart takes %s", bad)
		} else if key, _, _ := strings.Cut(bad, "="); !strings.Contains(string(out), strings.Split(key, ".")[0]) {
			t.Errorf("the refusal of %s doesn't name it:\n%s", bad, out)
		}
	}
}

// The plain manifests are what the chart renders, so that they can be applied without Helm.
// UPDATE=1 writes them.
//
// Requirement: OPS-010, OPS-027
func TestPlainManifestsAreRendered(t *testing.T) {
	for name, file := range cases(t) {
		want := "# Rendered from deploy/helm/roster with deploy/helm/values/" + name + ".yaml; don't edit.\n" +
			rendered(t, file)
		plain := "../kubernetes/" + name + ".yaml"

		if os.Getenv("UPDATE") != "" {
			must(t, os.WriteFile(plain, []byte(want), 0o644))
		}

		if have, err := os.ReadFile(plain); err != nil || string(have) != want {
			t.Errorf("%s is not what the chart renders (%v): UPDATE=1 go test -run PlainManifests", plain, err)
		}
	}
}

// Requirement: OPS-010, OPS-027
func TestManifestsAreValid(t *testing.T) {
	for _, file := range glob(t, "../kubernetes/*.yaml") {
		text, err := os.ReadFile(file)
		must(t, err)

		kinds := map[string]int{}

		for _, manifest := range documents(t, string(text)) {
			kind, _ := manifest["kind"].(string)
			kinds[kind]++

			if err := checkManifest(t, manifest); err != nil {
				t.Errorf("%s, %s: %v", file, kind, err)
			}
		}

		if strings.Contains(file, "sidecar") {
			continue
		}

		for _, kind := range []string{"StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap", "Service"} {
			if kinds[kind] == 0 {
				t.Errorf("%s has no %s", file, kind)
			}
		}
	}

	// Unknown members and wrong types are seen.
	broken := documents(t, rendered(t, "../helm/values/files.yaml"))
	for _, manifest := range broken {
		if manifest["kind"] != "StatefulSet" {
			continue
		}

		manifest["spec"].(map[string]any)["replica"] = 3

		if err := checkManifest(t, manifest); err == nil || !strings.Contains(err.Error(), "replica") {
			t.Errorf("an unknown member: %v", err)
		}
	}
}
