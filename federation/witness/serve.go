package witness

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/roster-mesh/roster/directory/problem"
)

// The routes of a witness.
const (
	Prefix        = "/witness" // of submissions and of monitoring
	pathSubmit    = Prefix + "/add-checkpoint"
	pathList      = Prefix + "/logs/v0"
	pathPolicy    = Prefix + "/policy"
	patternLatest = Prefix + "/{log}/checkpoint"
	typeSize      = "text/x.tlog.size"
	typeText      = "text/plain; charset=utf-8"
	cacheFor      = "public, max-age=60"
)

// Handler serves the routes of the witness to anyone: a submission is authenticated by its log's signature.
func (w *Witness) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathSubmit, w.submit)
	mux.HandleFunc("GET "+patternLatest, func(to http.ResponseWriter, r *http.Request) {
		text, err := w.Latest(r.PathValue("log"))
		w.show(to, text, err)
	})
	mux.HandleFunc("GET "+pathList, func(to http.ResponseWriter, _ *http.Request) {
		w.show(to, w.cfg.Logs.List(), nil)
	})
	mux.HandleFunc("GET "+pathPolicy, func(to http.ResponseWriter, _ *http.Request) {
		text, err := w.cfg.Policy()
		w.show(to, text, err)
	})

	return mux
}

func (w *Witness) show(to http.ResponseWriter, text string, err error) {
	if err != nil {
		problem.Write(to, w.cfg.PublicURL, err)
		return
	}

	to.Header().Set("Cache-Control", cacheFor)
	answer(to, http.StatusOK, typeText, text)
}

func answer(to http.ResponseWriter, status int, contentType, text string) {
	to.Header().Set("Content-Type", contentType)
	to.Header().Set("X-Content-Type-Options", "nosniff")
	to.Header().Set("Content-Length", strconv.Itoa(len(text)))
	to.WriteHeader(status)
	_, _ = io.WriteString(to, text) // an error means that the client is gone
}

// submit answers a submission.
func (w *Witness) submit(to http.ResponseWriter, r *http.Request) {
	line := ""

	body, err := io.ReadAll(http.MaxBytesReader(to, r.Body, maxSubmission))
	if err == nil {
		line, err = w.Add(r.Context(), string(body))
	}

	var refused *refusal

	switch {
	case err == nil:
		to.Header().Set("Cache-Control", "no-store")
		answer(to, http.StatusOK, typeText, line)
	case errors.As(err, &refused):
		refused.answer(to)
	default:
		problem.Write(to, w.cfg.PublicURL, err)
	}
}

// answer writes the refusal as tlog-witness wants it.
func (r *refusal) answer(to http.ResponseWriter) {
	to.Header().Set("Cache-Control", "no-store")

	switch r.status {
	case http.StatusConflict:
		answer(to, r.status, typeSize, fmt.Sprintf("%d\n", r.size))
	case http.StatusTooManyRequests:
		to.Header().Set("Retry-After", strconv.Itoa(max(int(math.Ceil(r.after.Seconds())), 1)))

		fallthrough
	default:
		answer(to, r.status, typeText, r.Error()+"\n")
	}
}
