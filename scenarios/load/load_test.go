package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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

// The domain that several sections share ends with the last chosen one of them, also if
// that fails, so that later sections have the machine for themselves.
func TestTheFilledDomainEndsWithItsLastSection(t *testing.T) {
	all := sections
	defer func() { sections = all }()

	var p *process
	uses := func(_ context.Context, b *bench) (err error) {
		if b.many != nil {
			return b.many.nodes[0].running()
		}

		p, err = begin("sleep", filepath.Join(b.dir, "log"), "sleep", "60")
		b.many = &filled{domain: &domain{nodes: []*process{p}, client: &http.Client{}}}

		return err
	}

	var between, after bool

	sections = []section{
		{"first", time.Minute, uses, true},
		{"between", time.Minute, func(context.Context, *bench) error {
			between = p.running() == nil
			return nil
		}, false},
		{"second", time.Minute, func(ctx context.Context, b *bench) error {
			_ = uses(ctx, b)
			return context.Canceled
		}, true},
		{"after", time.Minute, func(context.Context, *bench) error { after = p.running() == nil; return nil }, false},
		{"unchosen", time.Minute, uses, true},
	}
	if err := run(t.Context(), options{binary: "none",
		sections: []string{"first", "between", "second", "after"}}); err == nil {
		t.Error("the failure of a section is not reported")
	}

	if !between || after {
		t.Errorf("it runs between: %v, and after: %v", between, after)
	}
}
