package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A span is a span as deploy/test/collector prints it.
type span struct {
	Name, Trace, Span, Parent string
	Attributes, Resource      map[string]any
}

// Nodes export their traces to the OpenTelemetry Collector's own receiver: every span that they count as
// exported is received, whole traces across nodes among them, with the attributes that the
// environment adds to the resource.
//
// Requirement: OPS-030
func TestTracesArriveAtACollector(t *testing.T) {
	program := os.Getenv("COLLECTOR")
	if program == "" {
		t.Skip("the collector's receiver is not built: COLLECTOR names it, as .ci/deploy builds it from collector/")
	}

	address := freeAddress(t)
	received := &output{}
	command := exec.Command(program, address)
	command.Stdout = received
	start(t, "collector", command)

	until(t, "the collector listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}

		return err
	})

	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=roster-0")

	_, mesh := dev(t, 2, 1, "--trace", "http://"+address+"/v1/traces")

	for _, name := range []string{"parse", "project", "authorise", "write.commit", "write.apply", "answer",
		"federation.verify", "federation.store", "federation.index"} {
		until(t, "a span "+name+" of a whole trace arrives", func() error { return whole(received.String(), name) })
	}

	for _, domain := range mesh.Domains {
		counts, err := spanCounts(domain.Nodes[0].Admin)
		must(t, err)

		if counts["exported"] == "0" || counts["queue_full"] != "0" || counts["failed"] != "0" || counts["rejected"] != "0" {
			t.Errorf("%s counts its spans as %v", domain.TrustDomain, counts)
		}

		if strings.Contains(received.String(), domain.TrustDomain) {
			t.Errorf("a span names %s", domain.TrustDomain)
		}
	}
}

// whole returns nil if there is a span of a name whose ancestors arrived too, up to the first of the
// trace.
func whole(lines, name string) error {
	spans := map[string]span{}

	for scanner := bufio.NewScanner(strings.NewReader(lines)); scanner.Scan(); {
		var s span
		if json.Unmarshal(scanner.Bytes(), &s) == nil { // the last line may be half written
			spans[s.Span] = s
		}
	}

	for _, s := range spans {
		if s.Name != name {
			continue
		}

		if s.Resource["service.name"] != "roster" || s.Resource["k8s.pod.name"] != "roster-0" {
			return fmt.Errorf("the resource is %v", s.Resource)
		}

		for known := true; known && s.Parent != ""; {
			parent, ok := spans[s.Parent]
			if known = ok && parent.Trace == s.Trace; known {
				s = parent
			}
		}

		if s.Parent == "" && (s.Name == "request" || s.Name == "federation.page") {
			return nil
		}
	}

	return fmt.Errorf("not among %d spans", len(spans))
}

// spanCounts returns a node's counts of spans by fate.
func spanCounts(admin string) (map[string]string, error) {
	resp, err := http.Get(admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}

	counts := map[string]string{}

	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, `roster_trace_spans_total{fate="`); ok {
			fate, count, _ := strings.Cut(rest, `"} `)
			counts[fate] = count
		}
	}

	return counts, nil
}
