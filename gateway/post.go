package gateway

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/schema"
)

// post sends JSON to the agent, and returns its answer if that is a success. A Content-Type in
// header is a kind of JSON that the agent also answers with.
func (i *invocation) post(ctx context.Context, w *agentTask, address string, body []byte,
	header http.Header) (*invoke.Reply, error) {
	r, err := http.NewRequestWithContext(i.traceConn(ctx), http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, directory.Refuse(directory.EndpointRefused,
			"the agent's endpoint is no URL that can be called: %w", err)
	}

	maps.Copy(r.Header, header)

	own := i.setHeader(ctx, r.Header)

	// Each item of a batch is a request of its own to the agent.
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		r.Header.Set("Idempotency-Key", strings.TrimSuffix(key+"-"+w.number, "-"))
	}

	accept := "application/json, application/problem+json"

	if media := r.Header.Get("Content-Type"); media == "" {
		r.Header.Set("Content-Type", "application/json")
	} else {
		accept = media + ", " + accept
	}

	if i.in.Stream {
		accept = "text/event-stream, " + accept
	}

	r.Header.Set("Accept", accept)

	r.Header.Set("User-Agent", "roster-gateway")

	// RoundTrip follows no redirect, which could invoke another agent.
	resp, err := guarded{i.g.cfg.Guard, i.target()}.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, refusalOf(resp, own)
	}

	return i.read(ctx, resp)
}

// readAnswer reads a body of at most most bytes, and takes memory for it by hold: at once if its
// length is declared.
func readAnswer(resp *http.Response, most int64, hold func(int64) error) ([]byte, error) {
	from := io.Reader(resp.Body)

	declared := min(max(resp.ContentLength, 0), most)
	if declared == 0 {
		from = &holding{resp.Body, hold}
	} else if err := hold(declared); err != nil {
		return nil, err
	}

	var body bytes.Buffer

	// The declared length is at most most, and its memory was taken above.
	body.Grow(int(declared) + bytes.MinRead)

	if _, err := body.ReadFrom(io.LimitReader(from, most+1)); err != nil {
		return nil, err
	}

	if int64(body.Len()) > most {
		return nil, refuse(RuleSize, nil, "the answer has over %d bytes", most)
	}

	return body.Bytes(), nil
}

// holding is an answer's body whose bytes are counted as they come.
type holding struct {
	io.ReadCloser
	hold func(int64) error
}

// Read implements io.Reader. It fails with hold's error.
func (h *holding) Read(data []byte) (int, error) {
	n, err := h.ReadCloser.Read(data)
	if refused := h.hold(int64(n)); refused != nil {
		return 0, refused
	}

	return n, err
}

// hold takes memory for more bytes of answers from the caller's share.
func (i *invocation) hold(bytes int64) error {
	if i.in.Hold == nil {
		return nil
	}

	return i.in.Hold(bytes)
}

// read returns a success's body: whole if it is JSON, and else as it comes.
func (i *invocation) read(ctx context.Context, resp *http.Response) (*invoke.Reply, error) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))

	reply := &invoke.Reply{Status: resp.StatusCode, ContentType: media}

	switch media {
	case "text/event-stream", "application/x-ndjson", "application/jsonl":
		reply.Stream = resp.Body
		return reply, nil
	}

	defer resp.Body.Close()

	body, readErr := readAnswer(resp, i.g.cfg.MaxBody, i.hold)
	if readErr != nil {
		return nil, readErr
	}

	// The check of the syntax is judging, too: the body may be large.
	valid := false
	if err := i.judge(ctx, len(body), func(*schema.Budget) error {
		valid = jsontext.Value(body).IsValid()
		return nil
	}); err != nil {
		return nil, err
	}

	switch {
	case i.binding.Protocol == protocolA2A && media == "text/plain" && valid:
		// A2A's SDK for Go, as of 0.3.3, leaves the type of its answers to net/http's guess.
		reply.ContentType = "application/json"
	case err != nil || media != "application/json" && !strings.HasSuffix(media, "+json"):
		return nil, directory.Refuse(directory.AgentFailed, "the agent answered %d with %.100q, which is not JSON",
			resp.StatusCode, resp.Header.Get("Content-Type"))
	case !valid:
		return nil, directory.Refuse(directory.AgentFailed, "the agent's answer is not JSON")
	}

	reply.Body = bytes.TrimSpace(body)

	return reply, nil
}
