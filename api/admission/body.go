package admission

import (
	"io"
	"net/http"
	"time"
)

// Streamed is the limit of a body that its handler doesn't hold: it takes a fixed share.
const Streamed = -1

const (
	// FirstPiece is the first share of a body that doesn't declare its length.
	FirstPiece = 16 << 10

	streamPiece = 256 << 10 // the share of a streamed body
)

// BodyTime is how long a body may take; it may take longer, up to maxBodyTime, while it
// comes at bodyRate.
const (
	BodyTime    = 30 * time.Second
	bodyRate    = 1 << 10 // bytes per second
	maxBodyTime = 20 * time.Minute
)

// A Body is a request's body that counts against its caller's share of the bytes in flight,
// and has a deadline that moves with its progress. Bytes are counted before they are read:
// the declared length at once, and a body without one in pieces that double.
type Body struct {
	io.ReadCloser
	pools  *Pools
	caller Caller
	limit  int64 // in bytes; Streamed for none

	counted  int64
	releases []func()

	rc      *http.ResponseController
	began   time.Time
	allowed time.Duration
	read    int64
}

// OpenBody counts the body of a request against its caller's share, or refuses it. limit is
// the size that the route takes, or Streamed. A longer declared length counts nothing: the
// handler refuses it unread.
func (p *Pools) OpenBody(w http.ResponseWriter, r *http.Request, caller Caller, limit int64) (*Body, error) {
	body := &Body{
		ReadCloser: r.Body, pools: p, caller: caller, limit: limit,
		rc: http.NewResponseController(w), began: time.Now(), allowed: BodyTime,
	}

	first := r.ContentLength

	switch {
	case limit == Streamed:
		first = streamPiece
	case first < 0:
		first = min(FirstPiece, limit)
	case first > limit:
		first = 0
	default:
		// HTTP/2 says the end of the body by another read, which needs no more memory.
		body.limit = first
	}

	if first > 0 {
		if err := body.count(first); err != nil {
			return nil, err
		}
	}

	_ = body.rc.SetReadDeadline(body.began.Add(body.allowed)) // if the connection has deadlines

	return body, nil
}

// count takes a share for more bytes.
func (b *Body) count(bytes int64) error {
	release, err := b.pools.Take(RequestBytesPool, b.caller, bytes)
	if err != nil {
		return err
	}

	b.counted += bytes
	b.releases = append(b.releases, release)

	return nil
}

// Read implements io.Reader. It fails with the refusal of Pools if the body becomes longer
// than the caller's share allows.
func (b *Body) Read(data []byte) (int, error) {
	if b.limit != Streamed {
		if b.read == b.counted && b.counted < b.limit {
			if err := b.count(min(max(b.counted, FirstPiece), b.limit-b.counted)); err != nil {
				return 0, err
			}
		}

		// One byte over the limit shows that the body is too long.
		if open := max(b.counted-b.read, 1); int64(len(data)) > open {
			data = data[:open]
		}
	}

	n, err := b.ReadCloser.Read(data)

	b.read += int64(n)
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
		return n, err
	}

	// The time grows with the bytes, so a slow body that keeps coming is not cut.
	if allowed := min(time.Duration(b.read/bodyRate)*time.Second, maxBodyTime); allowed > b.allowed {
		b.allowed = allowed + time.Second
		_ = b.rc.SetReadDeadline(b.began.Add(b.allowed))
	}

	return n, err
}

// Release gives the share of the body back. The bytes that were read are dropped.
func (b *Body) Release() {
	for _, release := range b.releases {
		release()
	}
}

// Discard lets a body that no handler reads take no memory: HTTP/2 drops it as it comes. HTTP/1 keeps nothing of it,
// but reads some to get to the next request, in bounded time.
func Discard(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}

	if r.ProtoMajor >= 2 {
		_ = r.Body.Close()
		return
	}

	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTime))
}
