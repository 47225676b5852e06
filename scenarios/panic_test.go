package scenarios

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/mutants"
)

// metric returns the value of a series of a node's metrics, 0 for none.
func metric(n dev.Node, series string) (float64, error) {
	resp, err := admin.Get(n.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}

	return 0, lines.Err()
}

// names returns the agents that a node shows of those whose names begin so.
func names(t *testing.T, c *apiclient.Client, prefix string) (map[string]bool, error) {
	page, err := c.Lookup(t.Context(), apiclient.LookupOptions{Agent: prefix + "*"})

	found := map[string]bool{}
	for ; err == nil && page != nil; page, err = c.Next(t.Context(), page) {
		for _, a := range page.Agents {
			found[a.Agent] = true
		}
	}

	return found, err
}

// One document of a peer makes the program panic, and so do the headers and the ledger of its nodes. The nodes that
// read them stay up, show all other registrations, report the panics, and survive a restart. A release without
// the mistake shows the document without pulling it again.
//
// Requirement: FORM-006
func TestADocumentThatPanicsEndsNoNode(t *testing.T) {
	story(t)

	t.Parallel() // most of its time it waits for processes

	fixed, err := program()
	must(t, err)

	overlay, err := mutants.Overlay("..", t.TempDir(), &mutants.Mutant{
		File: "federation/replica/gate.go",
		Old:  "\tprojection, err := project(contents.Agent, contents.Document)\n",
		New: "\tif len(contents.Agent) > 12 && contents.Agent[:12] == \"kept-marked-\" {\n" +
			"\t\tpanic(\"the document is marked\")\n\t}\n\n" +
			"\tprojection, err := project(contents.Agent, contents.Document)\n",
	}, &mutants.Mutant{
		File: "federation/protocol/standing.go",
		Old:  "\tvalues, err := url.ParseQuery(text)\n",
		New:  "\tpanic(\"a standing\")\n\n\tvalues, err := url.ParseQuery(text)\n",
	}, &mutants.Mutant{
		File: "federation/subscribe.go",
		Old:  "\t\t\tissue = told\n",
		New:  "\t\t\tpanic(\"an issue\")\n\n\t\t\tissue = told\n",
	}, &mutants.Mutant{
		File: "federation/mirror/mirror.go",
		Old:  "\tentries, err := ledger.ReadEntries([]byte(text))\n",
		New:  "\tpanic(\"entries\")\n\n\tentries, err := ledger.ReadEntries([]byte(text))\n",
	})
	must(t, err)

	mutant := buildRelease(t, "mutant", "..", "-overlay", overlay)
	p := startRelease(t, mutant.path, "--domains", "2", "--nodes", "1", "--sample", "0")
	reader := p.Domains[1].Nodes[0]
	ada, bob := p.client(0, 0, "agent/ada"), p.client(1, 0, "agent/bob")
	register := func(agent, description string) {
		t.Helper()
		document := fmt.Appendf(nil, `{"base":"https://%s.alpha.test/","description":%q}`, agent, description)

		_, err := ada.Register(t.Context(), agent, document, apiclient.RegisterOptions{Lifetime: time.Hour})
		must(t, err)
	}

	// shows returns nil if beta shows the good registrations and the given number of bad
	// ones.
	shows := func(good, marked int) error {
		found, err := names(t, bob, "kept-")
		if err != nil {
			return err
		}

		bad := 0
		for name := range found {
			if strings.HasPrefix(name, "kept-marked-") {
				bad++
			}
		}

		if len(found)-bad != good || bad != marked {
			return fmt.Errorf("%d good ones and %d marked ones are shown", len(found)-bad, bad)
		}

		return nil
	}

	contained := func(where string) error {
		n, err := metric(reader, `roster_panics_contained_total{place="`+where+`"}`)
		if err == nil && n < 1 {
			err = errors.New("no panic is counted")
		}

		return err
	}

	register("kept-first", "fine")
	register("kept-marked-1", "marked")

	for i := range 20 {
		register(fmt.Sprint("kept-", i), "fine")
	}

	register("kept-marked-2", "marked")

	p.eventually("beta shows everything but those with the marker", func() error {
		return shows(21, 0)
	})

	for _, place := range []string{"record", "answer", "ledger"} {
		p.eventually("beta counts panics at "+place, func() error { return contained(place) })
	}

	p.kill(reader)
	p.restart(reader)
	p.eventually("beta shows them after a restart", func() error { return shows(21, 0) })
	p.eventually("beta counts panics of the start", func() error { return contained("stored") })
	register("kept-later", "fine")
	p.eventually("beta follows alpha", func() error { return shows(22, 0) })

	// The release that has no such mistake.
	p.kill(reader)
	p.path = fixed
	p.restart(reader)
	p.eventually("beta shows all of them", func() error { return shows(22, 2) })
}
