package scenarios

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A watch outlives a quiet hour, over HTTP/2 as well, where a stream has a
// deadline of its own.
func TestAQuietWatchGoesOn(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 1, Seed: seed})
		n := m.Domain("alpha.test").Nodes[0]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/ad/watch", nil)
		must(t, err)

		resp, err := n.HTTP("/client/reader").Do(req)
		must(t, err)
		defer resp.Body.Close()

		if resp.ProtoMajor != 2 {
			t.Fatalf("this is about HTTP/2, not %s", resp.Proto)
		}

		lines, failed := make(chan string, 4096), make(chan error, 1)
		go func() {
			in := bufio.NewScanner(resp.Body)
			for in.Scan() {
				lines <- in.Text()
			}

			failed <- in.Err()
		}()
		m.Sleep(time.Hour)
		m.Register("alpha.test", "late", 600)

		bound := time.After(time.Minute)
		for {
			select {
			case line := <-lines:
				if strings.HasPrefix(line, "data: ") && strings.Contains(line, `"late"`) {
					return
				}
			case err := <-failed:
				t.Fatalf("the watch ended: %v", err)
			case <-bound:
				t.Fatal("the watch says nothing")
			}
		}
	})
}
