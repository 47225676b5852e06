package api

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/api/admission"
)

// poolKeys are the keys of the pools under limits, or the names of those without a key.
var poolKeys = map[admission.Pool]string{
	admission.RequestPool: "requests_at_once", admission.WatchPool: "watches_at_once",
	admission.InvocationPool: "invocations_at_once", admission.NodePool: "requests of nodes",
}

// A threat is what a row of docs/threats.md says of a route.
type threat struct {
	class admission.Class
	pool  string
}

// Every route has one row in docs/threats.md, with the class of its rate and its pool, and
// every row is of routes.
//
// Requirement: SEC-001
func TestEveryRouteHasItsThreats(t *testing.T) {
	text, err := os.ReadFile("../docs/threats.md")
	must(t, err)

	_, section, _ := strings.Cut(string(text), "\n## Routes, listeners and fetches\n")
	section, _, _ = strings.Cut(section, "\n## ")

	rows := map[string]threat{} // by method and path
	for _, row := range regexp.MustCompile("(?m)^\\| `(?:GET|POST|PUT|DELETE) .*$").FindAllString(section, -1) {
		cells := strings.Split(row, " | ")
		if len(cells) != 6 {
			t.Fatalf("a row has %d cells: %.80s", len(cells), row)
		}

		for _, at := range regexp.MustCompile("`([A-Z]+ [^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			if _, twice := rows[at[1]]; twice {
				t.Errorf("docs/threats.md has two rows of %s", at[1])
			}

			rows[at[1]] = threat{admission.Class(strings.Trim(cells[2], "`")), strings.Trim(cells[3], "`")}
		}
	}

	for _, r := range newTestServer(t, whole).table() {
		at := r.method + " " + r.path

		got, listed := rows[at]
		if want := (threat{r.who.class, poolKeys[r.who.pool]}); !listed || got != want {
			t.Errorf("docs/threats.md says %v of %s, want %v", got, at, want)
		}

		delete(rows, at)
	}

	for at := range rows {
		t.Errorf("docs/threats.md has a row of %s, which is no route", at)
	}
}
