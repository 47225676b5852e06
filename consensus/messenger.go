package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

// The routes of the server for members, and the bound of a body.
const (
	presencePath = "/v1/presence"
	readPath     = "/v1/read"
	termPath     = "/v1/term"
	asidePath    = "/v1/aside"
	contactsPath = "/v1/contacts"
	vouchPath    = "/v1/vouch"
	decisionPath = "/v1/decision"
	commandPath  = "/v1/command"
	entriesPath  = "/v1/entries"
	rootPath     = "/v1/root"

	statementsPath = "/v1/statements"
)

// A messenger sends messages to members and answers theirs, over HTTP/2 within mutual TLS.
type messenger struct {
	cfg     *Config
	log     *slog.Logger
	cluster *transport.Cluster
}

func (m *messenger) answer(w http.ResponseWriter, reply message.Message) {
	data, err := m.encode(reply)
	if err != nil {
		m.log.Error("cannot encode an answer to a member", "err", err)
		m.refuse(w, err)

		return
	}

	w.Header().Set("Content-Type", message.TypeCBOR)
	_, _ = w.Write(data) // a member that has gone asks again
}

// post sends a message to a member and reads its answer. message.ErrNotLeader means that
// the member has not executed it, OutcomeUnknown that it may have.
func (m *messenger) post(ctx context.Context, to Member, path string, question, answer message.Message) error {
	body, err := m.encode(question)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}

	sent := false

	// Before there is a connection nothing was sent, and the message may go to another leader.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+to.Address+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the address of member %s: %w", to.ID, err)
	}

	req.Header.Set("Content-Type", message.TypeCBOR)

	resp, err := m.cluster.Client().Do(req)
	if err != nil {
		if sent {
			return message.Unknown(err)
		}

		return fmt.Errorf("%w: %w", message.ErrNotLeader, err)
	}
	defer resp.Body.Close()

	switch resp.StatusCode {
	case http.StatusOK:
		if err := readMessage(resp.Body, answer); err != nil {
			return message.Unknown(err)
		}

		return nil
	case http.StatusMisdirectedRequest:
		return message.ErrNotLeader
	}

	// A member refuses a message before it executes it.
	return fmt.Errorf("%w: member %s answered %s", message.ErrNotLeader, to.ID, resp.Status)
}

// askEach asks members at the same time, and returns a channel that gets the answer of each.
func askEach[A any](m *member, members []Member, question func(Member) A) <-chan A {
	// The buffer has room for all, so that answers for which nobody waits any more block no goroutine.
	answers := make(chan A, len(members))

	for _, to := range members {
		m.life.loops.Go(func() { answers <- question(to) })
	}

	return answers
}

// receive reads a message, if leads is true; otherwise it refuses it.
func (m *messenger) receive(w http.ResponseWriter, r *http.Request, leads bool, question message.Message) bool {
	if !leads {
		m.refuse(w, errMisdirected)
		return false
	}

	if err := readMessage(http.MaxBytesReader(w, r.Body, message.MaxBody), question); err != nil {
		m.refuse(w, directory.Refuse(directory.BadRequest, "malformed message from a member: %w", err))
		return false
	}

	return true
}

// route has the messages to a path answered, while this member may answer them.
func route[Q any, M interface {
	*Q
	message.Message
}, A message.Message](m *messenger, mux *http.ServeMux, path string, mayAnswer func() bool, answer func(M) A) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		request := M(new(Q))
		if m.receive(w, r, mayAnswer(), request) {
			m.answer(w, answer(request))
		}
	})
}

// readMessage reads a message of a member. One of over message.MaxBody bytes is an error, whatever it begins with.
func readMessage(r io.Reader, into message.Message) error {
	data, err := io.ReadAll(io.LimitReader(r, message.MaxBody+1))

	switch {
	case err != nil:
		return err
	case len(data) > message.MaxBody:
		return fmt.Errorf("it has over %d bytes", message.MaxBody)
	}

	return message.Unmarshal(data, into)
}

// refuse answers a member with err's problem.
func (m *messenger) refuse(w http.ResponseWriter, err error) { httpproblem.Write(w, m.cfg.API, err) }

// encode encodes a message to a member, or its answer.
func (m *messenger) encode(sent message.Message) ([]byte, error) {
	data, err := state.Marshal(sent)
	if err == nil && m.cfg.sent != nil {
		data = m.cfg.sent(data)
	}

	return data, err
}
