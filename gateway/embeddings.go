package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory/egress"
)

// maxVectorsBody bounds an answer of a source of vectors, in bytes.
const maxVectorsBody = 16 << 20

// Embeddings is a client of an OpenAI-compatible endpoint for vectors. The
// operator names it, and no registrant: it may be at any address but those that are
// closed for everybody (package egress). It follows no redirect, since that would take the key and the texts
// somewhere else.
type Embeddings struct {
	url, model, keyFile string
	client              *http.Client
}

// NewEmbeddings returns a client of the endpoint at address, such as
// https://HOST/v1/embeddings; http is for this machine alone. The key, if there
// is one, is read from its file for each request.
func NewEmbeddings(address, model, keyFile string) (*Embeddings, error) {
	target, err := url.Parse(address)
	switch {
	case err != nil || target.Host == "" || target.User != nil || target.Fragment != "":
		return nil, fmt.Errorf("%q is not the URL of an endpoint", address)
	case target.Scheme == "http" && !egress.IsLoopback(target.Hostname()):
		return nil, fmt.Errorf("%q: http is for this machine alone: queries would cross the network in the clear",
			address)
	case target.Scheme != "https" && target.Scheme != "http":
		return nil, fmt.Errorf("%q is not https", address)
	case model == "":
		return nil, errors.New("the model is missing")
	}

	dialer := &net.Dialer{Timeout: dialTimeout, Control: egress.Control(egress.Anywhere)}

	return &Embeddings{address, model, keyFile, &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: handshakeTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxConnsPerHost: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute,
	}}, nil
}

// Close closes the connections that no request uses.
func (e *Embeddings) Close() { e.client.CloseIdleConnections() }

// Model is the model's name.
func (e *Embeddings) Model() string { return e.model }

// Embed returns the vectors of texts, in their order.
func (e *Embeddings) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	body, err := json.Marshal(map[string]any{"model": e.model, "input": texts, "encoding_format": "float"})
	if err != nil {
		return nil, err
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", egress.Codings)

	if err := e.authorize(r); err != nil {
		return nil, err
	}

	resp, err := e.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	if err := egress.Unpack(resp); err != nil {
		return nil, fmt.Errorf("the source of vectors: %w", err)
	}

	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxVectorsBody+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the source of vectors answers %d", resp.StatusCode)
	case len(answer) > maxVectorsBody:
		return nil, fmt.Errorf("the source of vectors answers with over %d bytes", maxVectorsBody)
	}

	return parseVectors(answer, len(texts))
}

func (e *Embeddings) authorize(r *http.Request) error {
	if e.keyFile == "" {
		return nil
	}

	key, err := os.ReadFile(e.keyFile)
	if err != nil {
		return err
	}

	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))

	return nil
}

// parseVectors reads an answer, whose vectors may come in any order.
func parseVectors(answer []byte, n int) ([][]float32, error) {
	var a struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, fmt.Errorf("the source of vectors answers what is no list of vectors: %w", err)
	}

	if len(a.Data) != n {
		return nil, fmt.Errorf("the source of vectors answers %d for %d texts", len(a.Data), n)
	}

	vs := make([][]float32, n)
	for _, d := range a.Data {
		if d.Index < 0 || d.Index >= n || vs[d.Index] != nil || len(d.Embedding) == 0 {
			return nil, errors.New("the source of vectors doesn't answer one vector for each text")
		}

		vs[d.Index] = d.Embedding
	}

	return vs, nil
}
