package trust

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// While the Workload API doesn't answer, a WIT-SVID is used until shortly before its end, by its identity alone.
//
// Requirement: TRUST-002
func TestAWITSVIDIsUsedWhileTheAPIIsAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no request gets an answer

	client, err := workloadapi.New(t.Context(), workloadapi.WithAddr("unix://"+filepath.Join(t.TempDir(), "none")))
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })

	node := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")
	gateway := spiffeid.RequireFromString("spiffe://alpha.test/roster/gateway")
	now := time.Now()

	for name, c := range map[string]struct {
		held  spiffeid.ID
		renew time.Duration
		left  time.Duration
		used  bool
	}{
		"not to be renewed yet":       {node, time.Second, time.Hour, true},
		"to be renewed":               {node, 0, time.Hour, true},
		"to be renewed, near its end": {node, 0, witRetry, false},
		"of another identity":         {gateway, time.Second, time.Hour, false},
	} {
		cache := witCache{svid: &witsvid.SVID{ID: c.held, Expiry: now.Add(c.left)}, renew: now.Add(c.renew)}

		svid, err := cache.get(ctx, client, node, now)
		if used := err == nil && svid == cache.svid; used != c.used || (err == nil) != c.used {
			t.Errorf("%s: %v, %v", name, svid, err)
		}

		if c.used && !cache.renew.After(now) {
			t.Errorf("%s: the next request asks the API at once", name)
		}
	}
}
