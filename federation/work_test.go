package federation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A stuckWriter is a caller that takes nothing until it is told to.
type stuckWriter struct {
	*httptest.ResponseRecorder
	taking chan struct{}
}

func (w *stuckWriter) Write(data []byte) (int, error) {
	<-w.taking
	return w.ResponseRecorder.Write(data)
}

// requestRecords has a node of beta ask alpha for records, answered to w.
func (b *bench) requestRecords(w http.ResponseWriter, names []protocol.RecordName) {
	request := protocol.RecordsRequest{Origin: alpha.Name()}
	for _, name := range names {
		request.Names = append(request.Names, [2]directory.Hash{name.H, name.M})
	}

	body := bytes.NewReader(request.Bytes())
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, protocol.PathRecords, body)
	r.Header.Set(callerHeader, nodeID(beta, 1).String())
	b.alpha.http.ServeHTTP(w, r)
}

// Nodes of peers that read slowly hold no processor from others: while more of them than there are
// places for the reading of records take nothing of their answers, another one is answered. What reads
// meanwhile is bounded, and all get what they asked for in the end.
//
// Requirement: MESH-026
func TestSlowReadersHoldNoWorker(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for i := range 20 {
			b.origin.registerDocument(fmt.Sprint("agent-", i), 6000, sized(t, 30_000))
		}

		b.pull()

		var names []protocol.RecordName
		for _, r := range b.origin.regs {
			names = append(names, protocol.NameOf(r.announced))
		}

		taking := make(chan struct{})

		var slow []*stuckWriter
		for range runtime.GOMAXPROCS(0) + 1 {
			w := &stuckWriter{httptest.NewRecorder(), taking}
			slow = append(slow, w)

			go b.requestRecords(w, names)
		}

		synctest.Wait()

		quick := httptest.NewRecorder()
		b.requestRecords(quick, names)

		if lines := bytes.Count(quick.Body.Bytes(), []byte("\n")); quick.Code != http.StatusOK || lines != len(names) {
			t.Errorf("a caller that reads gets %d with %d of %d records", quick.Code, lines, len(names))
		}

		close(taking)
		synctest.Wait()

		for i, w := range slow {
			if lines := bytes.Count(w.Body.Bytes(), []byte("\n")); lines != len(names) {
				t.Errorf("slow caller %d gets %d of %d records", i, lines, len(names))
			}
		}
	})
}

// A page or record is read with a worker's place alone: while all are taken, a request waits, and ends
// when its caller has gone.
//
// Requirement: MESH-026
func TestReadingForPeersTakesAPlace(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()

		workers := newWorkers(64)
		caller := func(*http.Request) (spiffeid.ID, bool) { return nodeID(beta, 1), true }
		s := &server{cfg: &b.alpha.cfg, workers: workers, holdings: b.alpha.holdings, caller: caller}

		var held []func()

		for range max(1, runtime.GOMAXPROCS(0)/2) {
			leave, err := workers.Enter(t.Context(), s.party(nodeID(beta, 1)))
			must(t, err)

			held = append(held, leave)
		}

		read := make(chan error, 1)
		go func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, protocol.PathPages, nil)
			_, err := s.readPage(r, beta, protocol.PageQuery{Origin: alpha, Aud: directory.Mesh, Limit: 10})
			read <- err
		}()

		synctest.Wait()

		select {
		case err := <-read:
			t.Fatalf("a page is read without a place: %v", err)
		default:
		}

		for _, leave := range held {
			leave()
		}

		must(t, <-read)
	})
}

// An untouchedBody is a body that must not be read.
type untouchedBody struct{ t *testing.T }

func (b untouchedBody) Read([]byte) (int, error) {
	b.t.Error("the body of a request without a place is read")
	return 0, io.EOF
}

// A request over its domain's share is refused unread, and late, so that a peer's node that repeats such
// requests at once costs little (finding 34).
//
// Requirement: MESH-026
func TestRequestsOverTheShareAreRefusedUnreadAndLate(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()

		taking := make(chan struct{})

		var names []protocol.RecordName
		for _, r := range b.origin.regs {
			names = append(names, protocol.NameOf(r.announced))
		}

		for range pagesOfOne {
			go b.requestRecords(&stuckWriter{httptest.NewRecorder(), taking}, names)
		}

		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		repeat := func() (refused *httptest.ResponseRecorder, took time.Duration) {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, protocol.PathRecords, untouchedBody{t})
			r.Header.Set(callerHeader, nodeID(beta, 1).String())

			refused = httptest.NewRecorder()
			began := time.Now()
			b.alpha.http.ServeHTTP(refused, r)

			return refused, time.Since(began)
		}

		if refused, took := repeat(); refused.Code != http.StatusServiceUnavailable || took != refusalDelay {
			t.Errorf("one request more is answered with %d after %s", refused.Code, took)
		}

		cancel()

		if _, took := repeat(); took != 0 {
			t.Errorf("the refusal of a caller that has gone takes %s", took)
		}

		close(taking)
		synctest.Wait()
	})
}
