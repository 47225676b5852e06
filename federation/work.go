package federation

import (
	"net/http"
	"runtime"
	"time"

	"github.com/roster-mesh/roster/limit"
)

// workPatience is how long a request of a node waits for a worker's place.
const workPatience = 10 * time.Second

// newWorkers returns the places of the pages and records that are being read: half of the
// processors, so that no number of requests from peers delays the domain's own callers (rule S17).
// Domains get them in turn. waiting is how many requests may wait.
func newWorkers(waiting int) *limit.Fair {
	slots := max(1, runtime.GOMAXPROCS(0)/2)

	return limit.NewFair(limit.FairConfig{
		Slots: slots, PerParty: slots, Places: sharesOf(waiting), Patience: workPatience,
	})
}

// A servingWork is the reading of an answer with a worker's place, which is given up while the caller
// takes a part of it. It is for the goroutine of one request.
type servingWork struct {
	http.ResponseWriter
	request *http.Request
	workers *limit.Fair
	caller  limit.Caller
	leave   func() // nil without a place
	err     error  // why there was no place again
}

func (s *server) work(w http.ResponseWriter, r *http.Request) *servingWork {
	node, _ := s.caller(r) // it was admitted

	return &servingWork{ResponseWriter: w, request: r, workers: s.workers, caller: s.party(node)}
}

// begin waits for a place.
func (w *servingWork) begin() (err error) {
	if w.leave, err = w.workers.Enter(w.request.Context(), w.caller); err != nil {
		return errTurns
	}

	return nil
}

// end gives the place back, if it is held.
func (w *servingWork) end() {
	if w.leave != nil {
		w.leave()
		w.leave = nil
	}
}

// Write implements io.Writer for the part of an answer that is ready. It gives up the worker's place
// while the caller takes that part. After a failure, it fails at once.
func (w *servingWork) Write(data []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}

	w.end()

	n, err := w.ResponseWriter.Write(data)
	if err == nil {
		err = w.begin()
	}

	w.err = err

	return n, err
}

// Unwrap is for http.ResponseController.
func (w *servingWork) Unwrap() http.ResponseWriter { return w.ResponseWriter }
