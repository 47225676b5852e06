package attacks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Bars of two peers that say in each answer something else of this domain.
const (
	forgedStandings    = 40
	forgedStandingTime = 2 * time.Minute
	forgedSeries       = 8        // of metrics: one of each state that exists, for each peer
	forgedLog          = 16 << 10 // bytes
)

// Two peers together say in each answer something else of how they see this domain: states that don't
// exist, that they have frozen it and that they have not, positions far ahead, times without end, texts for a
// terminal. Nothing is decided by it, and what is shown, counted and logged of it is bounded.
//
// Requirement: SEC-003, SEC-015
func TestForgedStandingsDecideNothing(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]

	const marker, mark = "forged", "\x1b[2J\u009b2J\u202e"

	var said [2]atomic.Int64

	for i := range said {
		m.newFalsePeer(fmt.Sprintf("false-%d.test", i), func(p *falsePeer) {
			p.answer = func(header http.Header) {
				n := said[i].Add(1)
				state := []string{"frozen", "active", "none", marker + mark + fmt.Sprint(rand.Uint64()), "failing"}[n%5]
				standing := url.Values{
					"state": {state}, "position": {"18446744073709551615.18446744073709551615"},
					"page": {"9223372036854775807"}, "refused": {"-1"}, "code": {marker + mark},
					"error": {mark + strings.Repeat(marker, 200)}, "evidence": {marker + mark},
				}
				header.Set("Roster-Standing", standing.Encode())
				header.Add("Roster-Standing", "state="+strings.Repeat("x", 4<<10))
			}
		})
	}

	spoken := func() int64 { return min(said[0].Load(), said[1].Load()) }
	hears := func(more int64) {
		t.Helper()

		until := spoken() + more
		eventually(t, forgedStandingTime, "the peers have said more", func() error {
			if spoken() < until {
				return errors.New("they say nothing")
			}

			return nil
		})
	}

	hears(5)

	before := m.footprintOf(node)

	hears(forgedStandings)

	grown := m.footprintOf(node).minus(before)
	t.Logf("%d standings of each peer: %s", spoken(), grown)

	if grown.series > forgedSeries || grown.log > forgedLog {
		t.Errorf("%s; at most %d series and %d KiB of log are allowed", grown, forgedSeries, forgedLog>>10)
	}

	_, page, err := ask(t.Context(), &http.Client{Timeout: time.Minute}, http.MethodGet, node.Admin+"/metrics", nil)
	must(t, err)

	if strings.Contains(string(page), marker) {
		t.Error("a metric has a text of the peers")
	}

	for _, command := range [][]string{
		{"status"}, {"peer", "list"}, {"peer", "show", "false-0.test"}, {"peer", "list", "-o", "wide"},
	} {
		_, shown, errs := runProgram(t, append(m.operator(0), command...)...)
		if shown == "" || strings.ContainsAny(shown+errs, "\x1b\u009b\u202e") {
			t.Errorf("roster %s prints %q %q", strings.Join(command, " "), shown, errs)
		}
	}

	// A peer whose last word was that it has frozen this domain is shown as one that refuses it, until its next.
	for i := range said {
		if state := m.peerStatus(node, fmt.Sprintf("false-%d.test", i)).State; state != "active" && state != "refused" {
			t.Errorf("peer %d is %s here", i, state)
		}
	}
}
