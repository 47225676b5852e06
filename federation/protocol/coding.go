package protocol

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/roster-mesh/roster/directory/signed"
)

// The codings of an answer. Nothing is so much of a first sync as its records, and
// zstd takes a third of the time that gzip does, on both ends; gzip is for others.
const (
	CodingZstd = "zstd"
	codingGzip = "gzip"
	maxWindow  = 8 << 20 // of zstd; every receiver must support this size (RFC 9659)
)

// Codecs are pools of idle zstd encoders and decoders. Each Mesh has its own, because they
// hold channels and must not be shared between the synctest bubbles of tests.
type Codecs struct{ encoders, decoders sync.Pool }

func (c *Codecs) encoder(w io.Writer) *zstd.Encoder {
	if z, ok := c.encoders.Get().(*zstd.Encoder); ok {
		z.Reset(w)
		return z
	}

	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(256<<10), zstd.WithEncoderCRC(false)) // TLS detects damage, and each record is hashed
	if err != nil {
		panic(err) // the options are constants
	}

	return z
}

func (c *Codecs) decoder(r io.Reader) (*zstd.Decoder, error) {
	if z, ok := c.decoders.Get().(*zstd.Decoder); ok {
		return z, z.Reset(r)
	}

	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderLowmem(true))
}

// Compress returns a writer for an answer, in a coding that its caller accepts.
func (c *Codecs) Compress(w http.ResponseWriter, r *http.Request) (io.Writer, func()) {
	taken := r.Header.Get("Accept-Encoding")
	switch {
	case strings.Contains(taken, CodingZstd):
		w.Header().Set("Content-Encoding", CodingZstd)
		z := c.encoder(w)

		return z, func() {
			_ = z.Close() // fails only when the caller is gone
			z.Reset(nil)
			c.encoders.Put(z)
		}
	case strings.Contains(taken, codingGzip):
		w.Header().Set("Content-Encoding", codingGzip)
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // fails only for an invalid level

		return z, func() { _ = z.Close() }
	}

	buf := bufio.NewWriterSize(w, 32<<10)

	return buf, func() { _ = buf.Flush() }
}

// Decompress returns a reader of the decoded body, and a function to call after the last
// read.
func (c *Codecs) Decompress(coding string, body io.Reader) (io.Reader, func(), error) {
	switch coding {
	case CodingZstd:
		z, err := c.decoder(body)
		if err != nil {
			return nil, func() {}, err
		}

		return z, func() {
			_ = z.Reset(nil) // which never fails
			c.decoders.Put(z)
		}, nil
	case codingGzip:
		z, err := gzip.NewReader(body)
		return z, func() {}, err
	case "":
		return body, func() {}, nil
	default:
		return nil, func() {}, fmt.Errorf("unsupported content encoding %.20q", coding)
	}
}

// MaxCoded bounds an encoded answer. A valid one exceeds its contents only by the coding's
// frames. The bound also limits a series of empty frames.
const MaxCoded = MaxAnswer + signed.MaxRecord + 1<<20

// A countedBody is a body that reports the number of bytes read from it.
type countedBody struct {
	io.ReadCloser
	add func(n int)
}

func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.add(n)

	return n, err
}
