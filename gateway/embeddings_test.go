package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/gateway"
)

// A source of vectors is asked as OpenAI's is, with the key of the moment, and
// believed only where it answers a vector for each text.
func TestEmbeddings(t *testing.T) {
	var answer, asked, key, media string
	status := http.StatusOK
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)

		asked, key = r.Method+" "+r.URL.Path+" "+string(b), r.Header.Get("Authorization")
		media = r.Header.Get("Content-Type") + ", " + r.Header.Get("Accept-Encoding")

		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}

		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer source.Close()

	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, []byte("secret\n"), 0o600))

	e, err := gateway.NewEmbeddings(source.URL+"/v1/embeddings", "toy", file)
	must(t, err)
	defer e.Close()
	answer = `{"object":"list","model":"toy","data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[1,` +
		`0.5]}],"usage":{}}`

	got, err := e.Embed(t.Context(), []string{"a", "b"})
	if want := [][]float32{{1, .5}, {0, 2}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}

	if key != "Bearer secret" || !strings.HasPrefix(asked, "POST /v1/embeddings {") ||
		!strings.Contains(asked, `["a","b"]`) || media != "application/json, gzip" {
		t.Errorf("asked %s with %q, as %s", asked, key, media)
	}

	open, err := gateway.NewEmbeddings(source.URL+"/v1/embeddings", "toy", "")
	must(t, err)
	defer open.Close()

	if _, err := open.Embed(t.Context(), []string{"a", "b"}); err != nil || key != "" {
		t.Errorf("without a key: %v, asked with %q", err, key)
	}

	for name, c := range map[string]struct {
		status int
		answer string
	}{
		"one vector for two":      {200, `{"data":[{"index":0,"embedding":[1]}]}`},
		"one text twice":          {200, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`},
		"a text too many":         {200, `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`},
		"a text before the first": {200, `{"data":[{"index":-1,"embedding":[1]},{"index":0,"embedding":[1]}]}`},
		"an empty vector":         {200, `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[1]}]}`},
		"no JSON":                 {200, `<html>`},
		"too many bytes":          {200, strings.Repeat(" ", 17<<20)},
		"a failure":               {500, answer},
		"another place":           {302, answer},
	} {
		status, answer = c.status, c.answer

		if got, err := e.Embed(t.Context(), []string{"a", "b"}); err == nil {
			t.Errorf("%s: %v is believed", name, got)
		}

		if strings.Contains(asked, "elsewhere") {
			t.Errorf("%s: a redirect was followed", name)
		}
	}
}

// Where texts would cross the network in the clear, there is no client.
func TestEmbeddingsEndpoints(t *testing.T) {
	for address, good := range map[string]bool{
		"https://model.example/v1/embeddings":  true,
		"http://127.0.0.1:11434/v1/embeddings": true,
		"http://localhost/v1/embeddings":       true,
		"http://model.example/v1/embeddings":   false,
		"http://10.0.0.7/v1/embeddings":        false,
		"ftp://127.0.0.1/v1/embeddings":        false,
		"https://user:key@model.example/v1":    false,
		"model.example":                        false,
		"https://":                             false,
		"https://[::1/v1":                      false,
		"https://model.example/v1#vectors":     false,
	} {
		if _, err := gateway.NewEmbeddings(address, "toy", ""); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}
