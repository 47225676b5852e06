package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// A stalled client takes nothing of a body until it is let.
type stalled struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (s stalled) Write(b []byte) (int, error) {
	<-s.read
	return s.ResponseRecorder.Write(b)
}

// Whoever asks for much and reads none of it is refused more, and keeps nobody else from
// an answer; nor do all identities of another domain together.
//
// Requirement: AD-041
func TestUnreadAnswersAreBounded(t *testing.T) {
	large := `{"base":"https://a.test","description":"` + strings.Repeat("x", 4000) + `"}`

	var entries []*directory.Entry
	for i := range 20 {
		entries = append(entries, entry(t, alpha, rid(i+1), fmt.Sprint("open-", i), uint64(i+1), large))
	}

	for _, x := range []struct {
		method, target, body string
		most                 int64
		greedy               func(i int) string
	}{
		{"GET", "/agents", "", 8 << 20, func(int) string { return "/agent/bob" }},
		{"POST", "/agents/search", `{"top":20}`, 8 << 20, func(int) string { return "/agent/bob" }},
		{"POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"lookup_agents","arguments":{}}}`, 16 << 20,
			func(int) string {
				return "/agent/bob"
			}},
		{"GET", "/agents", "", 8 << 20, func(i int) string { return fmt.Sprint("spiffe://beta.test/agent/", i) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestServer(t, func(cfg *Config) {
				cfg.Identify = func(r *http.Request) (request.Credential, error) {
					who := r.Header.Get("Test-Caller")
					if id, err := directory.ParseIdentity(who); err == nil {
						return request.Credential{Identity: id, Method: "x509-svid"}, nil
					}

					return request.Credential{Identity: identity(who), Method: "x509-svid"}, nil
				}
				cfg.Sizes.AnswerBytes = x.most
			}, entries...)

			read := make(chan struct{})

			var (
				answers sync.WaitGroup
				mu      sync.Mutex
			)

			codes := map[int]int{}
			for i := range 40 {
				answers.Go(func() {
					r := httptest.NewRequest(x.method, "https://ad.alpha.test:8400"+x.target, strings.NewReader(x.body))
					r.RequestURI = x.target
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Accept", "application/json, text/event-stream")
					r.Header.Set("Test-Caller", x.greedy(i))
					w := stalled{httptest.NewRecorder(), read}
					s.Handler().ServeHTTP(w, r)
					mu.Lock()
					defer mu.Unlock()

					if w.Body.Len() < admission.SmallBody { // a tool says it in its result
						w.Code = http.StatusTooManyRequests
					}

					codes[w.Code]++
				})
			}

			synctest.Wait()

			if resp := ask(t, s, "/agent/eve", x.method, x.target, x.body, "Accept",
				"application/json, text/event-stream"); resp.StatusCode != 200 {
				t.Errorf("another caller: %d", resp.StatusCode)
			}

			close(read)
			answers.Wait()

			if codes[http.StatusOK] < 5 || codes[http.StatusOK] > 15 ||
				codes[http.StatusTooManyRequests] != 40-codes[http.StatusOK] {
				t.Errorf("%s %s: %v", x.method, x.target, codes)
			}

			if resp := ask(t, s, x.greedy(0), x.method, x.target, x.body, "Accept",
				"application/json, text/event-stream"); resp.StatusCode != 200 {
				t.Errorf("once they are read: %d", resp.StatusCode)
			}
		})
	}
}
