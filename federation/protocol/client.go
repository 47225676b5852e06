package protocol

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
)

// A Node is one node of a domain, by the base URL of its API.
type Node struct {
	Domain spiffeid.TrustDomain
	Base   string
}

// A Client asks other nodes. Its answers are foreign bytes: nothing of them is verified.
type Client struct {
	HTTP    func(peer spiffeid.TrustDomain) *http.Client // talks to nodes of that domain and to no others
	Traffic *Traffic
	Codecs  *Codecs
	Panics  *contain.Panics // counts panics on answers, which end the request; nil counts nothing
	Address string          // of this node, for HeaderAddress; no header if it is ""
	// Answered is called for each response of a node, interim ones too, whatever it says. An error
	// ends a pull that the node holds.
	Answered func(Node, http.Header) error
	// Failed is called when a request gets no response.
	Failed func(Node, error)
}

// Get asks a node and returns the body of its answer, "" for 204 No Content. A body that
// is longer than limit is cut off one byte later, which the gate refuses.
func (c *Client) Get(ctx context.Context, n Node, path string, q url.Values, limit int) (string, error) {
	answer, err := c.Ask(ctx, n, path, q, limit)
	return answer.Text, err
}

// An Answer is a node's answer to a request.
type Answer struct {
	Text   string // "" for 204 No Content
	Header http.Header
	By     spiffeid.ID // of the certificate that the node presented; zero if no connection was made
}

// Ask is Get that returns the whole answer. An answer that is refused, or that a rejected certificate prevents,
// still names the node.
func (c *Client) Ask(ctx context.Context, n Node, path string, q url.Values, limit int) (Answer, error) {
	return c.get(ctx, n, path, q, limit, func() {})
}

// A Held is the answer to a pull that a node may hold.
type Held struct {
	Answer

	Pinged bool // the node sent interim responses meanwhile
}

// Hold is Get for a request that the node may hold until it has news. The first response,
// each further one and the answer must arrive within silence of each other; otherwise Hold
// fails. An error of Answered ends it too.
func (c *Client) Hold(ctx context.Context, node Node, path string, q url.Values, limit int,
	silence time.Duration) (held Held, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()

	var pings atomic.Int64

	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			if pings.Add(1) > maxPings {
				return errPings
			}

			watchdog.Reset(silence)

			err := c.Answered(node, http.Header(header))
			if err != nil {
				cancel(err)
			}

			return err
		},
	})

	held.Answer, err = c.get(traced, node, path, q, limit, func() { watchdog.Stop() })
	held.Pinged = pings.Load() > 0

	// The request reports any end of ctx as a cancellation. The cause has the reason.
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, ctx.Err()) {
		err = fmt.Errorf("ask %s: %w", node.Base, cause)
	}

	return held, err
}

// get asks a node, and calls began when the header of the answer has arrived.
func (c *Client) get(ctx context.Context, node Node, path string, q url.Values, limit int,
	began func()) (answer Answer, err error) {
	err = c.Panics.Run(contain.Answer, func() (err error) {
		answer, err = c.exchange(ctx, node, path, q, limit, began)
		return err
	})

	return answer, err
}

func (c *Client) exchange(ctx context.Context, node Node, path string, q url.Values, limit int,
	began func()) (answer Answer, err error) {
	// In TLS 1.3 a node that rejects this node's certificate has presented its own before.
	var by atomic.Pointer[spiffeid.ID]

	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { by.Store(presented(info.Conn)) },
	})

	defer func() {
		if id := by.Load(); id != nil {
			answer.By = *id
		}
	}()

	req, err := http.NewRequestWithContext(traced, http.MethodGet, node.Base+path+"?"+q.Encode(), nil)
	if err != nil {
		return answer, fmt.Errorf("federation: %w", err)
	}

	c.introduce(ctx, req)
	req.Header.Set("Accept-Encoding", "identity") // a compressed body may unpack to any size

	res, err := c.HTTP(node.Domain).Do(req)
	if err != nil {
		c.Failed(node, err)
		return answer, notAnswered(node, err)
	}
	defer res.Body.Close()

	began()

	_ = c.Answered(node, res.Header) // the answer is here

	body, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	c.Traffic.Add(node.Domain, len(body), 0)

	switch {
	case err != nil:
		return answer, fmt.Errorf("ask %s: %w", node.Base, err)
	case res.StatusCode == http.StatusNoContent:
		return Answer{Header: res.Header}, nil
	case res.StatusCode == http.StatusNotFound:
		return answer, fmt.Errorf("ask %s: %w", node.Base, ErrNotFound)
	case res.StatusCode == http.StatusForbidden:
		return answer, fmt.Errorf("%w: %s says %s", ErrDenied, node.Base, Quote(body))
	case res.StatusCode != http.StatusOK:
		return answer, fmt.Errorf("%s answers %s: %s", node.Base, Status(res), Quote(body))
	}

	return Answer{Text: string(body), Header: res.Header}, nil
}

// presented returns the identity of the certificate that the other side of a connection presented, which the
// handshake has verified; nil without one.
func presented(conn net.Conn) *spiffeid.ID {
	secured, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}

	chain := secured.ConnectionState().PeerCertificates
	if len(chain) == 0 || len(chain[0].URIs) != 1 {
		return nil
	}

	id, err := spiffeid.FromURI(chain[0].URIs[0])
	if err != nil {
		return nil
	}

	return &id
}

// notAnswered is the failure of a request without an answer. Operators read it: it names the node
// and the cause, without the query of the URL.
func notAnswered(node Node, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}

	return fmt.Errorf("ask %s: %w", node.Base, err)
}

// introduce adds to a request where this node is reached, and its trace.
func (c *Client) introduce(ctx context.Context, req *http.Request) {
	span.Inject(ctx, req.Header)

	if c.Address != "" {
		req.Header.Set(HeaderAddress, c.Address)
	}
}

// Page asks for one page of an origin's stream. It returns "" if the node has no such page.
func (c *Client) Page(ctx context.Context, node Node, origin spiffeid.TrustDomain, aud directory.Audience,
	since uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()

	return c.Get(ctx, node, PathPages, PullQuery(origin, aud, since), MaxPage)
}

// Records asks a node for named records, and hands take each line of the answer that
// names one of them.
func (c *Client) Records(ctx context.Context, node Node, origin spiffeid.TrustDomain, names []RecordName,
	take func(RecordLine)) error {
	return c.Panics.Run(contain.Answer, func() error { return c.records(ctx, node, origin, names, take) })
}

func (c *Client) records(ctx context.Context, node Node, origin spiffeid.TrustDomain, names []RecordName,
	take func(RecordLine)) error {
	asked := make(map[RecordName]bool, len(names))

	request := RecordsRequest{Origin: origin.Name(), Names: make([][2]directory.Hash, len(names))}
	for i, nm := range names {
		request.Names[i] = [2]directory.Hash{nm.H, nm.M}
		asked[nm] = true
	}

	ctx, cancel := context.WithTimeout(ctx, AnswerTime) // so that time is left for the next holder
	defer cancel()

	res, err := c.Post(ctx, node, PathRecords, request.Bytes(), CodingZstd+", "+codingGzip)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", node.Base, Status(res))
	}

	// The encoded body is bounded too, because an endless one may decode to few bytes.
	coded := &countedBody{
		ReadCloser: http.MaxBytesReader(nil, res.Body, MaxCoded),
		add:        func(bytes int) { c.Traffic.Add(node.Domain, bytes, 0) },
	}
	body, done, err := c.Codecs.Decompress(res.Header.Get("Content-Encoding"), coded)
	defer done()

	if err != nil {
		return fmt.Errorf("%s answers: %w", node.Base, err)
	}

	lines := bufio.NewScanner(io.LimitReader(body, MaxAnswer+signed.MaxRecord))
	lines.Buffer(nil, signed.MaxRecord+1024)

	for lines.Scan() {
		line, err := ParseRecordLine(lines.Bytes())
		if err != nil {
			return fmt.Errorf("%s answers a malformed line: %w", node.Base, err)
		}

		if line.Error == "" && asked[RecordName{line.H, line.M}] {
			take(line)
		}
	}

	return lines.Err()
}

// Post sends a JSON body. The caller closes the body of the answer.
func (c *Client) Post(ctx context.Context, node Node, path string, body []byte, codings string) (*http.Response,
	error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, node.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}

	c.introduce(ctx, req)
	req.Header.Set("Content-Type", "application/json")

	if codings != "" {
		req.Header.Set("Accept-Encoding", codings)
	}

	res, err := c.HTTP(node.Domain).Do(req)
	if err != nil {
		c.Failed(node, err)
		return nil, notAnswered(node, err)
	}

	_ = c.Answered(node, res.Header) // the answer is here

	return res, nil
}

// Status returns the status of an answer with the standard text. The text that HTTP/1
// transmits is not used, because the other side may send any bytes.
func Status(res *http.Response) string {
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", http.StatusText(res.StatusCode)))
}

// Quote returns a refusal's text for an operator: the detail of a problem (RFC 9457), else the
// body itself. It is quoted because another party chose the bytes.
func Quote(body []byte) string {
	var p struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &p) == nil && p.Detail != "" {
		return fmt.Sprintf("%.200q", p.Detail)
	}

	return fmt.Sprintf("%.200q", body)
}

// The timeouts of requests to other nodes. A page's records are requested before the page is
// applied, so that a change is visible at once and completely. They delay the page by at
// most PrefetchTime.
const (
	AnswerTime   = 10 * time.Second
	RecordsTime  = 30 * time.Second
	PrefetchTime = 2 * time.Second
)

var ErrNotFound = errors.New("the node holds nothing of that origin")

var ErrDenied = errors.New("request denied")

// errSilent means that a node neither answered a held pull nor sent a sign of life.
var errSilent = errors.New("the node stopped answering while it held a pull")

// maxPings bounds the interim responses of one pull: a node sends at most one per minPing.
const maxPings = 2 * int64(MaxWait/minPing)

var errPings = errors.New("too many interim responses")

// Traffic counts the bytes of bodies that a domain's nodes answered and were
// answered. Only peers and the own domain reach it.
type Traffic struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]*[2]uint64
}

func (t *Traffic) Add(td spiffeid.TrustDomain, in, out int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.all == nil {
		t.all = map[spiffeid.TrustDomain]*[2]uint64{}
	}

	if t.all[td] == nil {
		t.all[td] = new([2]uint64)
	}

	t.all[td][0] += uint64(in)
	t.all[td][1] += uint64(out)
}

func (t *Traffic) Of(td spiffeid.TrustDomain) (in, out uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if n := t.all[td]; n != nil {
		return n[0], n[1]
	}

	return 0, 0
}

// A MeteredWriter is a response writer that counts the bytes written to a domain's node.
type MeteredWriter struct {
	http.ResponseWriter
	Traffic *Traffic
	To      spiffeid.TrustDomain
}

func (w *MeteredWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.Traffic.Add(w.To, 0, n)

	return n, err
}

// Unwrap is for http.ResponseController.
func (w *MeteredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
