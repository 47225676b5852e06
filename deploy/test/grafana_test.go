package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	prometheusquery "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// A panel is one of the dashboard. A row is a panel without queries, and its panels follow it.
type panel struct {
	Type, Title, Description string
	Links                    []struct{ URL string }
	Targets                  []struct{ Expr string }
}

func dashboardText(t *testing.T) []byte {
	t.Helper()

	text, err := os.ReadFile("../grafana/roster.json")
	must(t, err)

	return text
}

// dashboardPanels returns the dashboard's panels without its rows.
func dashboardPanels(t *testing.T) []panel {
	t.Helper()

	var parsed struct{ Panels []panel }
	must(t, json.Unmarshal(dashboardText(t), &parsed))

	panels := slices.DeleteFunc(parsed.Panels, func(p panel) bool { return p.Type == "row" })
	if len(panels) == 0 {
		t.Fatal("the dashboard has no panel")
	}

	return panels
}

// dashboardExpressions returns the expressions of the dashboard's panels.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()

	for _, panel := range dashboardPanels(t) {
		if len(panel.Targets) == 0 {
			t.Errorf("the panel %q has no query", panel.Title)
		}

		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}

	return all
}

// The dashboard has the members of Grafana's schema, and no others. Prometheus can parse its queries.
//
// Requirement: OPS-014
func TestDashboardIsValid(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheusquery.VariantConfig())

	for _, kind := range []variants.PanelcfgConfig{
		stat.VariantConfig(), table.VariantConfig(), timeseries.VariantConfig(),
	} {
		runtime.RegisterPanelcfgVariant(kind)
	}

	var (
		board  dashboard.Dashboard
		faults cog.BuildErrors
	)
	if err := board.UnmarshalJSONStrict(dashboardText(t)); errors.As(err, &faults) {
		for _, fault := range faults {
			t.Error(fault)
		}
	} else if err != nil {
		t.Fatal(err)
	}

	promtool := tool(t, "promtool")

	var rules []map[string]string
	for i, expression := range dashboardExpressions(t) {
		expression = strings.NewReplacer("$job", "roster", "$__rate_interval", "1m").Replace(expression)
		rules = append(rules, map[string]string{"record": fmt.Sprint("dashboard:", i), "expr": expression})
	}

	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	must(t, err)

	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	must(t, os.WriteFile(file, text, 0o600))

	run(t, exec.Command(promtool, "check", "rules", file))
}

var selectors = regexp.MustCompile(
	`\b(?:up|ALERTS|(?:roster|go|process)_[a-z0-9_]+|[a-z_]+:[a-z_]+:[a-z0-9]+)\b(\{[^}]*\})?`)

// Each panel of the dashboard says what it shows, reads the chosen job only, and links to sections of the
// runbooks that exist. Each alert's section is reached from a panel.
//
// Requirement: OPS-014
func TestDashboardLeadsToTheRunbooks(t *testing.T) {
	unlinked := map[string]bool{}
	for _, alert := range rulesOf(t, "../prometheus/alerts.yaml") {
		unlinked[alert.Annotations["runbook_url"]] = true
	}

	known := maps.Clone(unlinked)

	for _, panel := range dashboardPanels(t) {
		if panel.Description == "" {
			t.Errorf("the panel %q has no description", panel.Title)
		}

		for _, link := range panel.Links {
			if _, section, found := strings.Cut(link.URL, "#"); found && !known[link.URL] {
				t.Errorf("the panel %q links to %s, which is no alert's section", panel.Title, section)
			}

			delete(unlinked, link.URL)
		}

		for _, target := range panel.Targets {
			for _, selector := range selectors.FindAllStringSubmatch(target.Expr, -1) {
				if !strings.Contains(selector[1], `job="$job"`) {
					t.Errorf("the panel %q reads %s of all jobs", panel.Title, selector[0])
				}
			}
		}
	}

	for link := range unlinked {
		t.Errorf("no panel links to %s", link)
	}
}
