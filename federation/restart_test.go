package federation

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A node that starts again shows everything that is on its disk, as before, and pulls none of
// it.
//
// Requirement: OPS-032
func TestARestartPullsNothingAgain(t *testing.T) {
	b := newBench(t, nil)

	rids := b.origin.registers(40, 6000)

	for _, rid := range rids[:10] {
		b.origin.narrow(rid)
	}

	b.origin.remove(rids[20])
	b.pull()
	before := b.beta.shown(alpha)

	b.beta.reopen(t)

	var asked atomic.Int32
	b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/records") {
			asked.Add(1)
		}

		return body
	}

	b.pull()

	after := b.beta.shown(alpha)
	if len(before) != len(rids)-1 || len(after) != len(before) {
		t.Fatalf("%d were shown, and %d are", len(before), len(after))
	}

	for rid, was := range before {
		is := after[rid]
		if is == nil || is.Agent != was.Agent || is.Owner != was.Owner || is.Redacted != was.Redacted ||
			is.ExpiresAt != was.ExpiresAt || is.Revision != was.Revision || *is.Received != *was.Received ||
			string(is.Document.Bytes()) != string(was.Document.Bytes()) || is.Packed != was.Packed {
			t.Errorf("shown is %+v, and was %+v", is, was)
		}
	}

	if n := asked.Load(); n > 0 {
		t.Errorf("records were asked for %d times", n)
	}

	if missing := b.beta.origins.Get(alpha).Mesh.Cur.Missing; missing.Len() > 0 {
		t.Errorf("%d records count as missing", missing.Len())
	}
}
