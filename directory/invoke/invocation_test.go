package invoke_test

import (
	"net/http"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// What a document says of its agent's pace lowers it, wherever it is said.
//
// Requirement: AI-040
func TestPaceIsTheLowestThatIsSaid(t *testing.T) {
	for members, want := range map[string]invoke.Pace{
		`"name": "a"`: {},
		`"rate_limit": {"requests_per_second": 5, "requests_per_minute": 60}`:                            {PerSecond: 1},
		`"max_calls_per_minute": 30, "rate_limits": {"requests_per_second": 5}`:                          {PerSecond: 0.5},
		`"rate_limit": {"max_concurrent": 1}, "rate_limits": {"max_concurrent": 50}`:                     {Concurrent: 1},
		`"rate_limit": {"max_concurrent": 50}, "rate_limits": {"max_concurrent": 1}`:                     {Concurrent: 1},
		`"rate_limit": {"max_concurrent": -1, "requests_per_second": 0}, "max_calls_per_minute": "many"`: {},
	} {
		d, err := directory.ParseDocument(directory.KindAIDIP, []byte("{"+members+"}"))
		if err != nil {
			t.Fatal(err)
		}

		if got := invoke.PaceOf(d); got != want {
			t.Errorf("{%s} is %+v, want %+v", members, got, want)
		}
	}
}

// A gateway is told by its name, and not by one that begins as that does: proxies before
// a directory have names too.
func TestGatewaysAreCountedByTheirName(t *testing.T) {
	for want, vias := range map[int][][]string{
		0: {nil, {""}, {","}, {"1.1 proxy"}, {"1.1 roster-gateway-front"}, {"1.1 roster-gateway.example:443, 2 other"},
			{"11.1 roster-gateway"}, {"1.1"}, {"roster-gateway"}},
		1: {{invoke.ViaGateway}, {"2 proxy,1.1 roster-gateway", "1.1 other"}, {"1.1  roster-gateway (as it is)"}},
		2: {{invoke.ViaGateway, invoke.ViaGateway}, {invoke.ViaGateway + ", 1.1 proxy ,\t" + invoke.ViaGateway}},
	} {
		for _, via := range vias {
			if got := invoke.Gateways(http.Header{"Via": via}); got != want {
				t.Errorf("%q: %d, want %d", via, got, want)
			}
		}
	}
}
