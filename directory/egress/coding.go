package egress

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Codings are the content codings that Unpack takes, as the value of Accept-Encoding.
const Codings = "gzip"

// ErrCoding is the error of an answer whose content coding is not taken, or differs from its header.
var ErrCoding = errors.New("content coding not taken")

// Unpack has the body of an answer read as its content: unpacked if it is in gzip, which some
// servers send unasked. Its reader bounds it: the body is read no further than its content is.
func Unpack(resp *http.Response) error {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header.Values("Content-Encoding"), ", ")))

	switch coding {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
	default:
		return fmt.Errorf("%w: the answer is in Content-Encoding %.100q; gzip and identity are taken", ErrCoding,
			coding)
	}

	resp.Body = &unpacked{body: resp.Body}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1

	return nil
}

// unpacked is the content of a body in gzip. It waits for nothing before it is read.
type unpacked struct {
	body io.ReadCloser
	gzip *gzip.Reader
	err  error
}

// Read implements io.Reader.
func (u *unpacked) Read(data []byte) (int, error) {
	if u.gzip == nil && u.err == nil {
		u.gzip, u.err = gzip.NewReader(u.body)
		if errors.Is(u.err, io.EOF) {
			return 0, u.err // a body that is empty, as that of a 204, is in no coding
		}

		if u.err != nil {
			u.err = fmt.Errorf("%w: the answer is not in gzip, though it says so: %w", ErrCoding, u.err)
		}
	}

	if u.err != nil {
		return 0, u.err
	}

	return u.gzip.Read(data)
}

// Close implements io.Closer.
func (u *unpacked) Close() error { return u.body.Close() }
