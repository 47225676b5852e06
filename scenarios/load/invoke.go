package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// agentsCalled are as many as a gateway's own limits for one agent demand.
	agentsCalled = 64
	streamsOpen  = 1000
	invocation   = `{"text": "The quick brown fox jumps over the lazy dog.", "sentences": 2}`
	agentsAnswer = `{"summary": "A fox jumps over a dog.", "sentences": 1}`
)

// callee is the document of an agent at a URL.
func callee(url string) []byte {
	return fmt.Appendf(nil, `{"base": %q, "protocols": ["https"], "capabilities": [{"name": "summarize", "type": "tool",
		"input_schema": {"type": "object", "required": ["text"],
			"properties": {"text": {"type": "string"}, "sentences": {"type": "integer", "minimum": 1, "maximum": 20}}},
		"output_schema": {"type": "object", "required": ["summary"],
			"properties": {"summary": {"type": "string"}, "sentences": {"type": "integer"}}}}]}`, url)
}

// invocations measures the overhead of a node's gateway over a direct call of the agent,
// with both schemas applied, and the memory of the streams that it passes on.
func invocations(ctx context.Context, bench *bench) error {
	domain, err := bench.layOut(ctx, filepath.Join(bench.dir, "invoke"), 1)
	if err != nil {
		return err
	}
	defer domain.close()

	// One identity opens all streams, and may use an eighth of the pool.
	if err := domain.limit(0, "invocations_at_once", 8*streamsOpen); err != nil {
		return err
	}

	if err := domain.start(ctx); err != nil {
		return err
	}

	agent, url, err := bench.startBare(ctx, domain, "/agent", []byte(agentsAnswer))
	if err != nil {
		return err
	}
	defer agent.end()

	for i := range agentsCalled {
		if _, err := domain.register(ctx, 0, name("i", i), 86400, callee(url)); err != nil {
			return err
		}
	}

	if err := bench.overhead(ctx, domain, agent, url); err != nil {
		return err
	}

	return bench.streams(ctx, domain)
}

// invokeURL returns the URL at which d's gateway invokes one of the agents.
func (d *domain) invokeURL(i int) string {
	return d.Nodes[0].API + "/agents/" + name("i", i%agentsCalled) + "/invoke"
}

func (b *bench) overhead(ctx context.Context, domain *domain, agent *process, url string) error {
	post := func(ctx context.Context, url string) error {
		_, err := domain.do(ctx, http.MethodPost, url, []byte(invocation))
		return err
	}
	ours := domain.side("invocations", func(ctx context.Context, _, i int) error {
		return post(ctx, domain.invokeURL(i))
	})
	ours.processes = append([]*process{agent}, domain.nodes...)
	direct := side{name: "the agent itself", op: func(ctx context.Context, _, _ int) error {
		return post(ctx, url)
	}, processes: []*process{agent}}

	pairing, err := b.pair(ctx, 1, ours, direct, milliseconds(0.5))
	if err != nil {
		return err
	}

	b.report.add(pairing.row(row{Section: "invoke", What: "invocation, p50, 1 client", Unit: "ms",
		Note: "ours with the agent's"}))
	b.report.add(row{Section: "invoke", What: "… more than a direct call", Value: pairing.more, Unit: "ms",
		Bar: atMost(0.3)})

	return nil
}

// streams opens many streams, each on a connection of its own, and measures the growth
// of the node's memory after each has brought some events.
func (b *bench) streams(ctx context.Context, domain *domain) error {
	before, err := domain.nodes[0].memory(resident)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var opening errgroup.Group
	opening.SetLimit(32)

	open := make(chan io.Closer, streamsOpen)
	for i := range streamsOpen {
		opening.Go(func() error {
			body, err := domain.stream(ctx, i)
			if err == nil {
				open <- body
			}

			return err
		})
	}

	err = opening.Wait()
	close(open)
	defer func() {
		for s := range open {
			_ = s.Close() // the node is asked to go on anyway
		}
	}()

	if err != nil {
		return err
	}

	var grown int64
	for range 5 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}

		now, err := domain.nodes[0].memory(resident)
		if err != nil {
			return err
		}

		grown = max(grown, now-before)
	}

	b.report.add(row{Section: "invoke", What: count(streamsOpen) + " streams at once, resident growth",
		Value: float64(grown) / (1 << 20), Unit: "MiB", Bar: atMost(64),
		Note: "HTTP/1.1 on both sides: a connection for each; an event each second"})

	return nil
}

// stream has one of the agents invoked for a stream, and returns it at its first event.
func (d *domain) stream(ctx context.Context, i int) (io.Closer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.invokeURL(i), strings.NewReader(invocation))
	if err != nil {
		return nil, err
	}

	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}

	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}

	first := make([]byte, len("data: ")+len(agentsAnswer)+len("\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK ||
		!bytes.HasSuffix(first, []byte("\n\n")) {
		return nil, errors.Join(fmt.Errorf("a stream begins with %s, %.200q", resp.Status, first), err,
			resp.Body.Close())
	}

	return resp.Body, nil
}
