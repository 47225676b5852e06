package scenarios

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
)

// An observer with a clock asks 10^4 times about names and rids, half of them hidden
// from it and half unregistered, in turns. The durations of the answers distinguish the
// two no better than by chance. The measure is the share of pairs, one answer of each
// kind, in which the hidden one took longer: 0.5 is chance. It runs only with
// STORY_LONG, because a shared machine is not a reliable clock.
//
// Requirement: TRUST-014
func TestHiddenTakesAsLongAsAbsent(t *testing.T) {
	rounds := long(450, 0)
	if rounds == 0 {
		t.Skip("a measurement: set STORY_LONG")
	}

	p := startProcesses(t, "--domains", "1", "--sample", "0")
	ctx := t.Context()

	development, err := os.ReadFile("../trust/policy/development.cedar")
	must(t, err)

	text := string(development) + `
@id("eves-are-hidden")
forbid (principal, action in [Action::"read", Action::"invoke", Action::"export"], resource)
when { resource.owner == "spiffe://alpha.test/agent/eve" };
`
	must(t, p.client(0, 0, "ops/operator").Operator().SetPolicy(ctx, text, nil))

	const each = 40

	var kinds [2][]*subject // hidden, and unregistered

	eve, ada := p.client(0, 0, "agent/eve"), p.client(0, 0, "agent/ada")
	for i := range each {
		hidden := &subject{name: fmt.Sprintf("n%08x", rand.Uint32()), capability: fmt.Sprintf("c%08x", rand.Uint32())}

		out, err := eve.Register(ctx, hidden.name,
			fmt.Appendf(nil, `{"base":"https://x.example/","capabilities":[{"name":%q,"type":"skill"}]}`,
				hidden.capability), apiclient.RegisterOptions{Lifetime: 24 * time.Hour})
		must(t, err)

		if hidden.rid, err = directory.ParseRID(out.RID); err != nil {
			t.Fatal(err)
		}

		nobody := &subject{name: fmt.Sprintf("n%08x", rand.Uint32()), capability: fmt.Sprintf("c%08x", rand.Uint32()),
			rid: directory.NewRID(time.Now().UnixMilli(), [10]byte{byte(i), 9})}
		kinds[0], kinds[1] = append(kinds[0], hidden), append(kinds[1], nobody)

		if _, err := ada.Register(ctx, fmt.Sprintf("shown-%d", i),
			fmt.Appendf(nil, `{"base":"https://x.example/","capabilities":[{"name":"c%08x","type":"skill"}]}`, i),
			apiclient.RegisterOptions{Lifetime: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}

	client, url := p.http(0, "client/reader"), p.Domains[0].Nodes[0].API

	asked := 0
	for _, q := range []struct{ method, path, body string }{
		{"GET", "/ad/r/%n", ""}, {"GET", "/ad/r/%r", ""}, {"GET", "/ad/r/%r/record", ""},
		{"GET", "/ad/r/alpha.test/%r", ""},
		{"GET", "/ad/l?agent=%n", ""}, {"GET", "/ad/l?cap_name=%c", ""}, {"GET", "/agents/%n", ""},
		{"POST", "/discovery/query", `{"query":"%c","limit":5}`},
		{"DELETE", "/ad/r/%r", ""}, {"DELETE", "/ad/r/%n", ""}, {"POST", "/ad/r/%r?lt=600", ""},
	} {
		var took [2][]time.Duration
		for i := range rounds * 2 {
			kind := (i + i/2) % 2 // hidden, absent, absent, hidden: neither always behind the other
			s := kinds[kind][rand.IntN(each)]
			fill := strings.NewReplacer("%n", s.name, "%r", s.rid.String(), "%c", s.capability)

			req, err := http.NewRequestWithContext(ctx, q.method, url+fill.Replace(q.path),
				strings.NewReader(fill.Replace(q.body)))
			must(t, err)

			req.Header.Set("Content-Type", "application/json")
			began := time.Now()

			resp, err := client.Do(req)
			must(t, err)

			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			took[kind] = append(took[kind], time.Since(began))
			asked++
		}

		share := longer(took[0], took[1])
		t.Logf("%.3f  %s %s: hidden %v, absent %v (medians)", share, q.method, q.path, took[0][len(took[0])/2],
			took[1][len(took[1])/2])

		const slack = 0.06 // three standard errors of 450 and 450
		if share < 0.5-slack || share > 0.5+slack {
			t.Errorf("%s %s distinguishes hidden from absent by its duration: %.3f", q.method, q.path, share)
		}
	}

	t.Logf("%d questions", asked)
}

// longer is the share of all pairs in which the one of a took longer, and half of those
// that took as long. It sorts both.
func longer(a, b []time.Duration) float64 {
	slices.Sort(a)
	slices.Sort(b)

	sum := 0.0
	for _, d := range a {
		less, _ := slices.BinarySearch(b, d)
		upTo, _ := slices.BinarySearch(b, d+1)
		sum += float64(less) + float64(upTo-less)/2
	}

	return sum / float64(len(a)) / float64(len(b))
}
