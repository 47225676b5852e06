package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/trust"
)

// What operators are told to alarm on says that an SVID has ended, also where its files
// were never touched.
func TestAnIdentityThatHasEndedFails(t *testing.T) {
	now := time.Now()

	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), now)
	if err != nil {
		t.Fatal(err)
	}

	svid, err := ca.Issue("/roster/node/1", time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}

	s := trust.NewSource(svid)
	if identityFails(s, now) || !identityFails(s, svid.Certificates[0].NotAfter) {
		t.Errorf("it fails while it holds: %t; and when it has ended: %t", identityFails(s, now),
			identityFails(s, svid.Certificates[0].NotAfter))
	}
}

// Counters, and they alone, have names that end in _total.
func TestKindsOfMetrics(t *testing.T) {
	for _, m := range stateMetrics {
		counts := strings.Contains(m.desc.String(), `_total", help`)
		if counts != (m.kind == prometheus.CounterValue) {
			t.Errorf("%v is of type %v", m.desc, m.kind.ToDTO())
		}
	}
}

// Each figure of a peer has its metric, so that an alarm on it can go off.
func TestFiguresOfAPeer(t *testing.T) {
	peer := federation.PeerStatus{
		Domain: spiffeid.RequireTrustDomainFromString("beta.test"), State: "frozen", Unconfirmed: 3, Shed: true,
		OverQuota: 4, Unsupported: "format 9", Refusal: "none", LagRevisions: 5, LagSeconds: 6, Records: 7, Bytes: 8,
		LedgerDiffers: make([]string, 2),
	}
	peer.Doubtful = slices.Grow(peer.Doubtful, 2)[:2]
	peer.Doubtful[0].Distrusted = time.Now()

	s := &snapshot{peers: []federation.PeerStatus{peer}}
	want := map[string]float64{
		"federation_frozen beta.test": 1, "federation_unconfirmed beta.test": 3, "federation_shed beta.test": 1,
		"federation_over_quota_registrations beta.test": 4, "federation_unsupported beta.test": 1,
		"federation_contradicted_nodes beta.test distrusted": 1, "federation_contradicted_nodes beta.test undecided": 1,
		"federation_ledger_differs beta.test": 2,
		"peer_refuses beta.test none":         1, "federation_lag_revisions beta.test": 5,
		"federation_lag_seconds beta.test": 6, "quota_peer_records beta.test": 7, "quota_peer_bytes beta.test": 8,
	}
	got := map[string]float64{}

	for _, m := range stateMetrics {
		for key := range want {
			name, _, _ := strings.Cut(key, " ")
			if strings.Contains(m.desc.String(), `"roster_`+name+`"`) {
				m.read(s, func(value float64, labels ...string) { got[name+" "+strings.Join(labels, " ")] = value })
			}
		}
	}

	if !maps.Equal(got, want) {
		t.Errorf("the metrics are %v, want %v", got, want)
	}
}
