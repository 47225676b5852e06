package api

import (
	"io"
	"net/http"
	"regexp"
	"testing"
)

// goWords are what a decoder says to those who write Go.
var goWords = regexp.MustCompile(`into Go|jsontext|json:|after offset|wire\.|struct \{|map\[|%!|<nil>`)

// No route describes a body that it refuses in the words of the program's types.
func TestRefusedBodiesAreDescribedForPeople(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable)
	s := newTestServer(t, whole, e)
	refused := 0

	for _, res := range resources(s.table()) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
			if _, ok := res.routes[method]; !ok {
				continue
			}

			for _, caller := range []string{"/ops/operator", "/agent/ada"} {
				for _, body := range []string{``, `{`, `[`, `7`, `[7]`, `[{"id":7}]`, `{"lt":"a","lt":"b"}`, `{"x":`,
					`{"policy":7}`, `{"secret":7,"domain":7,"version":"a"}`, `{"owner":7,"to":[7]}`, `{"unheard":1}`,
					`{"items":{},"query":7,"id":7,"params":7,"method":7}`, `[{"unheard":1}]`} {
					resp := ask(t, s, caller, method, concrete.Replace(res.path), body)
					answer, err := io.ReadAll(resp.Body)

					must(t, err)

					if resp.StatusCode == http.StatusBadRequest {
						refused++
					}

					if words := goWords.Find(answer); words != nil {
						t.Errorf("%s %s of %s: %q in %s", method, res.path, body, words, answer)
					}
				}
			}
		}
	}

	if refused < 100 {
		t.Errorf("%d bodies are refused", refused)
	}
}
