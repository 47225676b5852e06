package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

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
