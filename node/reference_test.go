package node

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roster-mesh/roster/node/metrics"
)

var update = flag.Bool("update", false, "write docs/reference anew")

const metricsPage = "../docs/reference/metrics.md"

// described takes name, help and labels from the text of a Desc, which has no other
// access to them.
var described = regexp.MustCompile(`^Desc\{fqName: "(roster_\w+)", help: ("(?:[^"\\]|\\.)*"), ` +
	`unit: "[^"]*", constLabels: \{[^}]*\}, variableLabels: \{(.*)\}\}$`)

// docs/reference/metrics.md lists the metrics of a node's registry.
//
// Requirement: OPS-035
func TestReferenceOfMetrics(t *testing.T) {
	registry := metrics.New("1.0.0").Registry
	registry.MustRegister(&metrics.Collector{})

	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()

	var rows []string
	for desc := range descs {
		part := described.FindStringSubmatch(desc.String())
		if part == nil {
			continue // the Go runtime's
		}

		name, labels := part[1], part[3]

		kind := "gauge"
		switch {
		case name == "roster_http_request_duration_seconds":
			kind = "histogram"
		case strings.HasSuffix(name, "_total"): // TestKindsOfMetrics holds this
			kind = "counter"
		}

		if labels != "" {
			labels = "`" + strings.ReplaceAll(labels, ",", "`, `") + "`"
		}

		help := strings.NewReplacer(`\"`, `"`, "|", `\|`).Replace(strings.Trim(part[2], `"`))
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, labels, help))
	}

	slices.Sort(rows)

	page := "# Metrics\n\n" +
		"A node serves these at `/metrics` of its admin listener, beside the Go runtime's `go_*` and the process's\n" +
		"`process_*`. Labels have few values; a name, a path or a query is never one.\n\n" +
		"Generated from the code by `make reference`.\n\n" +
		"| metric | type | labels | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "")

	if *update {
		must(t, os.WriteFile(metricsPage, []byte(page), 0o644))
	}

	if kept, err := os.ReadFile(metricsPage); err != nil || !bytes.Equal(kept, []byte(page)) {
		t.Errorf("%s is stale (%v): run make reference", metricsPage, err)
	}
}
