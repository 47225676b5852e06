package credentials

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/trust"
)

// An issuer's keys come from the URL that is pinned, whole, or the last good ones
// stay: not from a redirect, the body of another status, one that is too long, or a
// set without keys. A new set takes the place of the old.
//
// Requirement: TRUST-006
func TestKeysOfAURL(t *testing.T) {
	set := func(kid string) []byte {
		text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey(t).Public(), KeyID: kid,
			Use: "sig"}}})
		must(t, err)

		return text
	}
	answer := func(status int, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}

	var now atomic.Pointer[http.HandlerFunc]
	say := func(h http.HandlerFunc) { now.Store(&h) }
	elsewhere := httptest.NewTLSServer(answer(http.StatusOK, set("stolen")))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*now.Load())(w, r)
	}))
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	keys, err := OpenKeys(server.URL+"/jwks", pool)
	must(t, err)

	say(answer(http.StatusOK, set("k1")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	fetched := make(chan struct{}, 1)
	go func() {
		defer close(done)
		keys.Run(ctx, slog.New(slog.NewTextHandler(writer(func() {
			select {
			case fetched <- struct{}{}:
			default:
			}
		}), nil)))
	}()
	<-fetched // Run tells of new keys
	cancel()
	<-done

	if _, ok := keys.of("k1")["k1"]; !ok {
		t.Fatal("Run has fetched nothing")
	}

	for name, c := range map[string]struct {
		say  http.HandlerFunc
		want string
	}{
		"a redirect": {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, "302"},
		"to http": {http.RedirectHandler("http://127.0.0.1:1/jwks", http.StatusMovedPermanently).ServeHTTP,
			"301"},
		"an error's":    {answer(http.StatusServiceUnavailable, set("k2")), "503"},
		"nothing new":   {answer(http.StatusNoContent, nil), "204"},
		"over 1 MiB":    {answer(http.StatusOK, append(set("k2"), strings.Repeat(" ", trust.MaxBundle)...)), "bytes"},
		"no key":        {answer(http.StatusOK, []byte(`{"keys":[]}`)), "no signature key"},
		"a twin member": {answer(http.StatusOK, []byte(`{"keys":[],"keys":[]}`)), "the JSON is not"},
		"a symmetric": {answer(http.StatusOK, []byte(`{"keys":[{"kty":"oct","kid":"k2","k":"AAAA"}]}`)),
			"symmetric"},
		"not JSON":        {answer(http.StatusOK, []byte("<html>")), "the JSON is not"},
		"a broken answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		say(c.say)

		if _, err := keys.load(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}

		if _, ok := keys.all()["k1"]; !ok || len(keys.all()) != 1 {
			t.Errorf("%s: the last good keys are gone: %v", name, keys.all())
		}
	}

	say(answer(http.StatusOK, set("k2")))

	if changed, err := keys.load(t.Context()); err != nil || !changed {
		t.Errorf("a new set: %v, %v", changed, err)
	}

	if changed, err := keys.load(t.Context()); err != nil || changed {
		t.Errorf("the same set: %v, %v", changed, err)
	}

	if _, old := keys.all()["k1"]; old || keys.all()["k2"] == nil {
		t.Errorf("after a rotation the keys are %v", keys.all())
	}

	unknown, err := OpenKeys(server.URL+"/jwks", x509.NewCertPool())
	must(t, err)

	if _, err := unknown.load(t.Context()); err == nil {
		t.Error("a server that nobody certifies is believed")
	}

	for _, source := range []string{
		"http://127.0.0.1/jwks", "https://[", "https:///jwks", "https://a:b@127.0.0.1/jwks", "https://127.0.0.1/jwks#a",
	} {
		if _, err := OpenKeys(source, nil); err == nil {
			t.Errorf("%s is taken", source)
		}
	}
}

// A writer is called for each write.
type writer func()

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// Tokens that name an unknown key have the source read sooner, however many they are, and not at once again.
//
// Requirement: TRUST-006
func TestAnUnknownKeyIsLookedForSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, cancel := context.WithCancel(t.Context())
		cancel()

		for _, row := range []struct {
			ctx     context.Context
			unknown int
			want    time.Duration
		}{{t.Context(), 0, time.Hour}, {t.Context(), 3, fetchAgain}, {over, 3, 0}} {
			k := &Keys{wanted: make(chan struct{}, 1)}
			for range row.unknown {
				k.of("unknown")
			}

			began := time.Now()
			k.rest(row.ctx, time.Hour)

			if got := time.Since(began); got != row.want {
				t.Errorf("after %d unknown keys it rests for %s, want %s", row.unknown, got, row.want)
			}
		}
	})
}

// A source that fails is read again at a pace, and not without a pause.
//
// Requirement: TRUST-006
func TestASourceThatFailsIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
		defer cancel()

		absent := &Keys{source: filepath.Join(t.TempDir(), "absent"), wanted: make(chan struct{}, 1)}
		attempts := 0
		absent.Run(ctx, slog.New(slog.NewTextHandler(writer(func() {
			if attempts++; attempts > int(time.Hour/fetchAgain) {
				cancel()
			}
		}), nil)))

		if attempts != int(time.Hour/fetchAgain) {
			t.Errorf("%d attempts in an hour", attempts)
		}
	})
}
