package main

import (
	"net/http"
	"strings"
	"testing"
)

// status begins with a verdict in the words of doctor. With --exit-code a script need not read it.
func TestStatusBeginsWithAVerdict(t *testing.T) {
	const (
		peers   = `"peers":[{"id":"n1","address":"a:1","voter":true,"state":"alive"},`
		alive   = `{"id":"n2","address":"b:1","voter":true,"state":"alive"}]`
		silent  = `{"id":"n2","address":"b:1","voter":true,"state":"silent"}]`
		cloned  = `{"id":"n2","address":"b:1","voter":true,"state":"alive","duplicate":"c:1"}]`
		quotas  = `,"quotas":{"registrations":1}`
		healthy = `{"id":"n1","ready":true,"position":"1.2","svid_expires":"2099-01-01T00:00:00Z",` +
			`"bundle_expires":"2099-01-01T00:00:00Z","disk_free":1000000000,"disk_free_percent":50}`
	)

	for _, c := range []struct {
		raft, status, found string
		code                int
	}{
		{`{"leader":"n1",` + peers + alive + quotas + `}`, "ok", "n1 leads 2 voters", 0},
		{`{"leader":"n1",` + peers + silent + quotas + `}`, "warning", "silent: n2; 1 of the lines below need", 1},
		{`{"leader":"n1",` + peers + cloned + quotas + `}`, "failed", "n1 leads 2 voters; 1 of", 1},
		{`{` + peers + alive + quotas + `}`, "failed", "no leader is known; 2 nodes vote", 1},
	} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			says(map[string]string{"/v1/operator/status": healthy, "/v1/operator/raft": c.raft,
				"/v1/operator/peers": `{"peers":[]}`}[r.URL.Path])(w, r)
		})

		code, out, errs := w.run("status", "--exit-code")
		_, rows, _ := strings.Cut(out, "\n")

		if code != c.code || !strings.HasPrefix(rows, "verdict\t"+c.status+"\t") || !strings.Contains(rows, c.found) {
			t.Errorf("of %s: exit code %d, want %d\n%s%s", c.raft, code, c.code, out, errs)
		}

		if code, _, _ := w.run("status"); code != 0 {
			t.Errorf("without --exit-code: exit code %d", code)
		}
	}
}
