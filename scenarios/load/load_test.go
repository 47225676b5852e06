package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/roster-mesh/roster/node/dev"
)

// A node that refuses a probe's requests counts as pausing.
func TestRefusedProbesShowNoPause(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		var reads, writes atomic.Int64
		asked := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			count := &reads
			if r.Method == http.MethodPost {
				count = &writes
			}

			if count.Add(1) == 3 {
				asked <- struct{}{}
			}

			w.WriteHeader(status)
		}))
		defer s.Close()
		f := &filled{domain: &domain{Domain: dev.Domain{Nodes: []dev.Node{{API: s.URL}}}, client: s.Client()}, size: 1}
		p := f.watch(t.Context())
		<-asked
		<-asked

		took, err := p.end()
		if (err == nil) != (status == http.StatusOK) {
			t.Errorf("answered %d, the probe says %v", status, err)
		}

		for _, one := range took {
			if done := one.done >= 2; done != (status == http.StatusOK) {
				t.Errorf("answered %d, %d are done", status, one.done)
			}
		}
	}
}
