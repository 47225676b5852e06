package credentials

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/roster-mesh/roster/directory/strictjson"

	"github.com/roster-mesh/roster/trust"
)

// Bounds of an issuer's key set, and of its retrieval.
const (
	maxIssuerKeys    = 100
	filePollInterval = 30 * time.Second
	fetchEvery       = 5 * time.Minute
	fetchAgain       = 15 * time.Second // at the soonest, for a key that is not known, or after a failure
)

// Keys are the keys of one issuer of tokens, pinned by where they come from: a
// JWKS (RFC 7517) in a file or at an https URL that configuration names, never one
// that a token does. The last good set is kept. It is safe for concurrent use.
type Keys struct {
	source string
	client *http.Client  // nil for a file
	wanted chan struct{} // holds one: a token named a key that is not known

	mu   sync.RWMutex
	raw  []byte
	keys map[string]crypto.PublicKey // by kid; never modified
}

// OpenKeys returns the keys of a JWKS in a file, which must be readable now, or at
// an https URL, which Run fetches; authorities, if not nil, certify that URL's
// server instead of the system's.
func OpenKeys(source string, authorities *x509.CertPool) (*Keys, error) {
	k := &Keys{source: source, wanted: make(chan struct{}, 1)}
	if !strings.Contains(source, "://") {
		if _, err := k.load(context.Background()); err != nil {
			return nil, err
		}

		return k, nil
	}

	if u, err := url.Parse(source); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Fragment != "" {
		return nil, fmt.Errorf("%q is neither a file nor an https URL", source)
	}

	k.client = trust.PinnedClient(&http.Transport{
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities},
		TLSHandshakeTimeout:    trust.FetchTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true,
	})

	return k, nil
}

// Run keeps the keys equal to those of their source until ctx ends. It logs a key set
// that can't be used, and keeps the last good one.
func (k *Keys) Run(ctx context.Context, log *slog.Logger) {
	every := filePollInterval
	if k.client != nil {
		every = fetchEvery
	}

	for ctx.Err() == nil {
		wait := every

		changed, err := k.load(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Error("an issuer's keys can't be had; those that were known stay", "source", k.source, "known",
				len(k.all()), "err", err)
			wait = fetchAgain
		case changed:
			log.Info("an issuer's keys", "source", k.source, "keys", len(k.all()))
		}

		k.rest(ctx, wait)
	}
}

// rest waits until it is time to look at the source again: sooner if a token
// named a key that is not known, but not at once again.
func (k *Keys) rest(ctx context.Context, wait time.Duration) {
	// Callers can name unknown keys at will, so these cause at most one fetch in fetchAgain.
	soon, late := time.After(fetchAgain), time.After(wait)

	select {
	case <-ctx.Done():
		return
	case <-soon:
	}

	select {
	case <-ctx.Done():
	case <-late:
	case <-k.wanted:
	}
}

// of returns the keys by kid, and has them looked for again if kid is missing.
func (k *Keys) of(kid string) map[string]crypto.PublicKey {
	keys := k.all()
	if _, ok := keys[kid]; !ok {
		// A full channel holds the same wish already, so no request waits here.
		select {
		case k.wanted <- struct{}{}:
		default:
		}
	}

	return keys
}

func (k *Keys) all() map[string]crypto.PublicKey {
	k.mu.RLock()
	defer k.mu.RUnlock()

	return k.keys
}

// load reads the source and takes its keys into use.
func (k *Keys) load(ctx context.Context) (changed bool, err error) {
	raw, err := k.read(ctx)
	if err != nil {
		return false, err
	}

	if k.mu.RLock(); bytes.Equal(raw, k.raw) {
		k.mu.RUnlock()
		return false, nil
	}

	k.mu.RUnlock()

	keys, err := parseKeys(raw)
	if err != nil {
		return false, fmt.Errorf("the JWKS of %s: %w", k.source, err)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.raw, k.keys = raw, keys

	return true, nil
}

func (k *Keys) read(ctx context.Context) ([]byte, error) {
	if k.client != nil {
		return trust.FetchDocument(ctx, k.client, k.source)
	}

	file, err := os.Open(k.source)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	return trust.ReadDocument(file)
}

// parseKeys reads a JWKS strictly and returns its signature keys that have an id.
// Keys of a type or use that is not known are left out, as RFC 7517, 5 says. A set
// with a private or symmetric key, or with two keys of one id, or without any key
// that is usable, is refused.
func parseKeys(raw []byte) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := strictjson.Unmarshal(raw, &set); err != nil {
		return nil, err
	}

	if len(set.Keys) > maxIssuerKeys {
		return nil, fmt.Errorf("it has over %d keys", maxIssuerKeys)
	}

	keys := map[string]crypto.PublicKey{}
	for i, text := range set.Keys {
		var about struct {
			Kty string `json:"kty"`
			Use string `json:"use"`
			Kid string `json:"kid"`
		}
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}

		// The set is public, so anyone could sign with a symmetric key in it.
		if about.Kty == "oct" {
			return nil, fmt.Errorf("key %d is symmetric", i)
		}

		// A key without an id is of no use, because every token must name its key.
		if about.Kid == "" || about.Use != "" && about.Use != "sig" && about.Use != "wit-svid" &&
			about.Use != "jwt-svid" {
			continue
		}

		key, err := parseJWK(text)
		switch _, twice := keys[about.Kid]; {
		case errors.Is(err, jose.ErrUnsupportedKeyType):
			continue
		case err != nil:
			return nil, fmt.Errorf("key %d: %w", i, err)
		case twice:
			return nil, fmt.Errorf("two keys have the id %.100q", about.Kid)
		}

		keys[about.Kid] = key
	}

	if len(keys) == 0 {
		return nil, errors.New("it has no signature key with an id")
	}

	return keys, nil
}

// parseJWK reads one public key.
func parseJWK(text []byte) (crypto.PublicKey, error) {
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("not a JWK: %w", err)
	}

	if !key.IsPublic() || !key.Valid() {
		return nil, errors.New("not a public key")
	}

	return key.Key, nil
}
