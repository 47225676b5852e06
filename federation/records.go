package federation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	disk "github.com/roster-mesh/roster/federation/store"
)

// records answers named records, one a line. What doesn't fit into the answer is
// left out of it; the caller asks again.
func (s *server) records(w http.ResponseWriter, r *http.Request, from spiffeid.TrustDomain) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRecordsBody))
	var req namesRequest
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return directory.Refuse(directory.TooLarge, "the body has over %d bytes", maxRecordsBody)
	case err != nil || json.Unmarshal(body, &req) != nil || len(req.Names) > maxNames:
		return directory.Refuse(directory.BadRequest, `the body is {"origin": DOMAIN, "names": [[h, m], …]} with at most %d names`, maxNames)
	}
	origin, err := originOf(url.Values{"origin": {req.Origin}})
	if err != nil {
		return err
	}
	if !s.lists(origin, from) && origin != s.cfg.Domain {
		return errNotListed
	}
	if !s.replies.take(from) {
		return errTurns
	}
	defer s.replies.leave(from)
	if origin != s.cfg.Domain && s.StoreStalled() > 0 {
		return unavailable(disk.ErrStalled)
	}

	w.Header().Set("Content-Type", typeNDJSON)
	w.Header().Set("Cache-Control", "no-store")
	out, done := s.codecs.compressed(w, r)
	defer done()
	written, recordOf := 0, s.recordsOf(origin, from)
	for _, hm := range req.Names {
		n := name{hm[0], hm[1]}
		line := recordLine{H: n.h, M: n.m}
		text, ok, err := recordOf(n)
		switch {
		case errors.Is(err, disk.ErrStalled):
			return nil // what is left out of an answer is asked for again
		case errors.Is(err, errNotReady):
			line.Error = string(directory.Unavailable)
		case err != nil:
			s.cfg.Logger.Error("can't serve a record", "origin", origin.Name(), "error", err)
			line.Error = string(directory.Internal)
		case !ok:
			line.Error = string(directory.NotFound)
		default:
			line.Record = text
		}
		b := line.bytes()
		if written += len(b); written > maxAnswer {
			return nil
		}
		if _, err := out.Write(b); err != nil {
			return nil // the caller is gone
		}
	}
	return nil
}

// recordsOf returns what finds the records that a domain may have: of the own domain what
// one of its streams names, of another what its mesh stream does; and what was announced
// to this domain alone, where it is a node of this domain that asks. The streams of
// another are looked up once: while one is pulled, its lock is held most of the time.
func (m *Mesh) recordsOf(origin, to spiffeid.TrustDomain) func(name) (string, bool, error) {
	if origin == m.cfg.Domain {
		return func(n name) (string, bool, error) { return m.ownRecord(to, n) }
	}
	auds := []directory.Audience{directory.Mesh}
	if to == m.cfg.Domain {
		auds = append(auds, directory.Only(to))
	}
	var shown []*stream
	if o := m.origin(origin); o != nil {
		for _, aud := range auds {
			shown = append(shown, o.shownStream(aud))
		}
	}
	return func(n name) (string, bool, error) {
		for _, st := range shown {
			r, err := m.storedRecord(st, n)
			if err != nil {
				return "", false, err
			}
			if r != nil {
				return r.record().String(), true, nil
			}
		}
		return "", false, nil
	}
}

func (m *Mesh) ownRecord(to spiffeid.TrustDomain, n name) (string, bool, error) {
	if m.lists(m.cfg.Domain, to) {
		if text, ok, err := m.publisher.record(directory.Mesh, n); ok || err != nil {
			return text, ok, err
		}
	}
	return m.publisher.record(directory.Only(to), n)
}

// storedRecord returns a record that another domain's stream names; nil where it names
// none, or there is no such stream.
func (m *Mesh) storedRecord(st *stream, n name) (r *storedRecord, err error) {
	if st == nil {
		return nil, nil
	}
	for _, place := range m.store.places.of(st.id, n) {
		r, err = readFor(m.store, st.id, func(t *streamTx) (*storedRecord, error) { return t.recordAt(place, n) })
		if r != nil || err != nil {
			break
		}
	}
	return r, err
}

// The codings of an answer. Nothing is so much of a first sync as its records, and
// zstd takes a third of the time that gzip does, on both ends; gzip is for others.
const (
	codingZstd = "zstd"
	codingGzip = "gzip"
	maxWindow  = 8 << 20 // of zstd, which an answer's reader must have room for (RFC 9659)
)

// codecs are zstd's encoders and decoders that nobody uses now. They hold channels,
// so each Mesh has its own: a test's bubble must not meet another's.
type codecs struct{ encoders, decoders sync.Pool }

func (c *codecs) encoder(w io.Writer) *zstd.Encoder {
	if z, ok := c.encoders.Get().(*zstd.Encoder); ok {
		z.Reset(w)
		return z
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(256<<10))
	if err != nil {
		panic(err) // the options are constants
	}
	return z
}

func (c *codecs) decoder(r io.Reader) (*zstd.Decoder, error) {
	if z, ok := c.decoders.Get().(*zstd.Decoder); ok {
		return z, z.Reset(r)
	}
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
}

// compressed returns where to write an answer, in a coding that its caller takes.
func (c *codecs) compressed(w http.ResponseWriter, r *http.Request) (io.Writer, func()) {
	taken := r.Header.Get("Accept-Encoding")
	switch {
	case strings.Contains(taken, codingZstd):
		w.Header().Set("Content-Encoding", codingZstd)
		z := c.encoder(w)
		return z, func() {
			_ = z.Close() // fails only when the caller is gone
			z.Reset(nil)
			c.encoders.Put(z)
		}
	case strings.Contains(taken, codingGzip):
		w.Header().Set("Content-Encoding", codingGzip)
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // fails only for a level that is none
		return z, func() { _ = z.Close() }
	}
	buf := bufio.NewWriterSize(w, 32<<10)
	return buf, func() { _ = buf.Flush() }
}

// plainly returns the bytes of an answer's body without its coding, and what is to
// be called when they were read.
func (c *codecs) plainly(res *http.Response) (io.Reader, func(), error) {
	switch coding := res.Header.Get("Content-Encoding"); coding {
	case codingZstd:
		z, err := c.decoder(res.Body)
		if err != nil {
			return nil, func() {}, err
		}
		return z, func() {
			_ = z.Reset(nil) // which never fails
			c.decoders.Put(z)
		}, nil
	case codingGzip:
		z, err := gzip.NewReader(res.Body)
		return z, func() {}, err
	case "":
		return res.Body, func() {}, nil
	default:
		return nil, func() {}, fmt.Errorf("it is coded as %.20q", coding)
	}
}

// maxCoded bounds an answer as it comes. None is longer than what is in it by more than
// a coding's frames, of which there might else be one after another with nothing in them.
const maxCoded = maxAnswer + directory.MaxRecord + 1<<20

// maxAnswers bounds what is fetched at a time, each answer being at most maxAnswer:
// a peer whose documents are large is asked again later for the rest.
const maxAnswers = 4

// fetch asks holders in turn for records until none is missing. What a holder
// gives is what its name says, or it is not taken and the next one is asked; what
// else is wrong with it is for the record gate to find.
func (m *Mesh) fetch(ctx context.Context, origin spiffeid.TrustDomain, names []name, holders []node) map[name]fetched {
	got := make(map[name]fetched, len(names))
	answers := 0
	for _, h := range holders {
		for ctx.Err() == nil && answers < maxAnswers {
			missing := without(names, got)
			if len(missing) == 0 {
				return got
			}
			before := len(got)
			if err := m.askRecords(ctx, origin, missing, h, got); err != nil {
				m.cfg.Logger.Debug("can't get records", "origin", origin.Name(), "from", h.base, "error", err)
				break
			}
			if len(got) == before {
				break
			}
			answers++
		}
	}
	return got
}

// without returns up to maxNames of those that aren't got yet.
func without(names []name, got map[name]fetched) []name {
	var missing []name
	for _, n := range names {
		if _, ok := got[n]; !ok && len(missing) < maxNames {
			missing = append(missing, n)
		}
	}
	return missing
}

// askRecords asks one holder and adds to got what it gives.
func (m *Mesh) askRecords(ctx context.Context, origin spiffeid.TrustDomain, names []name, n node, got map[name]fetched) error {
	asked := make(map[name]bool, len(names))
	q := namesRequest{Origin: origin.Name(), Names: make([][2]directory.Hash, len(names))}
	for i, nm := range names {
		q.Names[i], asked[nm] = [2]directory.Hash{nm.h, nm.m}, true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime) // the next holder has its time as well
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.base+pathRecords, bytes.NewReader(q.bytes()))
	if err != nil {
		return fmt.Errorf("federation: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", codingZstd+", "+codingGzip)
	res, err := m.cfg.Client(n.domain).Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", n.base, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", n.base, answered(res))
	}
	res.Body = &counted{http.MaxBytesReader(nil, res.Body, maxCoded), func(bytes int) { m.traffic.add(n.domain, bytes, 0) }}
	body, done, err := m.codecs.plainly(res)
	defer done()
	if err != nil {
		return fmt.Errorf("%s answers: %w", n.base, err)
	}
	lines := bufio.NewScanner(io.LimitReader(body, maxAnswer+directory.MaxRecord))
	lines.Buffer(nil, directory.MaxRecord+1024)
	var header string // of the record before: as a rule it is the same
	for lines.Scan() {
		l, err := readLine(lines.Bytes())
		if err != nil {
			return fmt.Errorf("%s answers what is no record: %w", n.base, err)
		}
		nm := name{l.H, l.M}
		if l.Error != "" || !asked[nm] {
			continue
		}
		var r *storedRecord
		err = m.cfg.Panics.Run(contain.Record, func() (err error) {
			r, err = readRecord(nm, l.Record, header)
			return err
		})
		if err != nil {
			m.counts.add(origin, CodeRecord)
			m.refusing.add(n.domain, CodeRecord)
			if m.refusals.allow(CodeRecord, n.domain) {
				m.cfg.Logger.Warn("refused a record", "origin", origin.Name(), "from", n.base, "h", nm.h.String(), "error", err)
			}
			continue
		}
		header = r.Header
		got[nm] = fetched{r, n.domain, time.Now()}
	}
	return lines.Err()
}

// A counted body tells how many bytes of it were read.
type counted struct {
	io.ReadCloser
	add func(n int)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.add(n)
	return n, err
}

// readLine reads a line of an answer. One that is written as this release writes it
// needs no parser.
func readLine(b []byte) (l recordLine, err error) {
	const (
		h      = `{"h":"`
		m      = `","m":"`
		record = `","record":"`
		end    = `"}`
		hash   = 43 // characters of one
		before = len(h) + hash + len(m) + hash + len(record)
	)
	if len(b) > before+len(end) && bytes.HasPrefix(b, []byte(h)) && bytes.HasPrefix(b[before-len(record):], []byte(record)) && bytes.HasSuffix(b, []byte(end)) {
		l.Record = string(b[before : len(b)-len(end)])
		var err1, err2 error
		l.H, err1 = directory.ParseHash(string(b[len(h) : len(h)+hash]))
		l.M, err2 = directory.ParseHash(string(b[before-len(record)-hash : before-len(record)]))
		if err1 == nil && err2 == nil && strings.IndexByte(l.Record, '"') < 0 {
			return l, nil
		}
		l = recordLine{}
	}
	return l, json.Unmarshal(b, &l)
}

var errNotNamed = errors.New("the bytes are not those of that name")

// readRecord takes a record apart and compares it with its name. A JWS header that
// is the one given was looked at before; "" is none.
func readRecord(n name, text, header string) (*storedRecord, error) {
	rec, err := directory.ParseRecord(text)
	if err != nil {
		return nil, err
	}
	parts, err := splitJWS(rec.JWS)
	if err != nil {
		return nil, err
	}
	if written, _, _ := strings.Cut(rec.JWS, "."); written == "" || written != header {
		if err := checkHeader(parts.header, directory.TypeRecord); err != nil {
			return nil, err
		}
		header = written
	}
	r := &storedRecord{
		Header: header, Payload: parts.payload,
		Signature: rec.JWS[len(rec.JWS)-directory.B64.EncodedLen(64):], Disclosures: rec.Disclosures,
	}
	if !r.is(n) {
		return nil, errNotNamed
	}
	return r, nil
}
