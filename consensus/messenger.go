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
		data, err := io.ReadAll(io.LimitReader(resp.Body, message.MaxBody))
		if err == nil {
			err = message.Unmarshal(data, answer)
		}

		if err != nil {
			return message.Unknown(err)
		}

		return nil
	case http.StatusMisdirectedRequest:
		return message.ErrNotLeader
	}

	// A member refuses a message before it executes it.
	return fmt.Errorf("%w: member %s answered %s", message.ErrNotLeader, to.ID, resp.Status)
}

// receive reads a message, if leads is true; otherwise it refuses it.
func (m *messenger) receive(w http.ResponseWriter, r *http.Request, leads bool, question message.Message) bool {
	if !leads {
		m.refuse(w, errMisdirected)
		return false
	}

	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, message.MaxBody))
	if err == nil {
		err = message.Unmarshal(data, question)
	}

	if err != nil {
		m.refuse(w, directory.Refuse(directory.BadRequest, "malformed message from a member: %w", err))
		return false
	}

	return true
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
