package trust

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/roster-mesh/roster/directory/egress"
)

// FetchTimeout bounds a request of FetchDocument.
const FetchTimeout = 10 * time.Second

// MaxBundle bounds a JWKS or a trust bundle in bytes.
const MaxBundle = 1 << 20

// PinnedClient returns a client for FetchDocument. It follows no redirects: their target is
// not the address that was pinned. A transport without a dialer of its own gets one that
// refuses metadata services and addresses that embed others.
func PinnedClient(transport *http.Transport) *http.Client {
	if transport.DialContext == nil {
		dialer := &net.Dialer{Timeout: FetchTimeout, Control: egress.Control(egress.Anywhere)}
		transport.DialContext = dialer.DialContext
	}

	return &http.Client{
		Transport:     transport,
		Timeout:       FetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// FetchDocument fetches a JWKS or a bundle: the body of a 200 only, of at most MaxBundle
// bytes. go-spiffe's fetcher accepts bodies of error responses and redirects to http.
func FetchDocument(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	req.Header.Set("Accept-Encoding", egress.Codings)

	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}

	if err := egress.Unpack(resp); err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}

	return ReadDocument(resp.Body)
}

// ReadDocument reads a JWKS or a bundle of at most MaxBundle bytes.
func ReadDocument(r io.Reader) ([]byte, error) {
	// The byte beyond the bound distinguishes a longer document from one of exactly that size.
	text, err := io.ReadAll(io.LimitReader(r, MaxBundle+1))
	if err == nil && len(text) > MaxBundle {
		err = fmt.Errorf("it has over %d bytes", MaxBundle)
	}

	return text, err
}
