package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

// A request is a validated change with its caller, as a follower hands it to the
// leader: exactly one member is set.
type request struct {
	Register *registerRequest `cbor:"1,keyasint,omitempty"`
	Refresh  *refreshRequest  `cbor:"2,keyasint,omitempty"`
	Remove   *removeRequest   `cbor:"3,keyasint,omitempty"`
	Peer     *state.Peer      `cbor:"4,keyasint,omitempty"`
	Attest   *state.Attest    `cbor:"5,keyasint,omitempty"`
	Order    *order           `cbor:"6,keyasint,omitempty"`
	Renew    *renewRequest    `cbor:"7,keyasint,omitempty"`
	Redeem   *state.Redeem    `cbor:"8,keyasint,omitempty"`
	Policy   *state.Policy    `cbor:"9,keyasint,omitempty"`
	Claim    *state.Claim     `cbor:"10,keyasint,omitempty"`
	Settle   *state.Settle    `cbor:"11,keyasint,omitempty"`
	Spend    *state.Spend     `cbor:"12,keyasint,omitempty"`
	Transfer *transferRequest `cbor:"13,keyasint,omitempty"`
	Rebundle *state.Rebundle  `cbor:"14,keyasint,omitempty"`
	Revoke   *state.Revoke    `cbor:"15,keyasint,omitempty"`
	Amend    *state.Amend     `cbor:"16,keyasint,omitempty"`
}

func decodeRequest(raw []byte) (*request, error) {
	r := &request{}
	return r, readMessage(raw, r)
}

// weight is how many changes a request is. A claim may bring an answer back: as many
// of them share a message as fit into the one that returns.
func (r *request) weight() int {
	switch {
	case r.Renew != nil:
		return r.Renew.Renewals.Count()
	case r.Claim != nil:
		return maxChanges * state.MaxAnswer / (maxBody - state.MaxAnswer*4)
	}
	return 1
}

type caller struct {
	Identity      directory.Identity `cbor:"1,keyasint"`
	Commissioning bool               `cbor:"2,keyasint,omitempty"`
	RequestID     string             `cbor:"3,keyasint,omitempty"`
	Proof         directory.Hash     `cbor:"4,keyasint,omitzero"`
	ProofUntil    int64              `cbor:"5,keyasint,omitempty"`
	Judged        *uint64            `cbor:"6,keyasint,omitempty"`
}

// by is who asks for a change of registrations; nobody of other requests.
func (r *request) by() caller {
	switch {
	case r.Register != nil:
		return r.Register.Caller
	case r.Refresh != nil:
		return r.Refresh.Caller
	case r.Remove != nil:
		return r.Remove.Caller
	case r.Renew != nil:
		return r.Renew.Caller
	case r.Transfer != nil:
		return r.Transfer.Caller
	}
	return caller{}
}

// spend is what the request's caller showed that is good once; nil where it may be
// shown again.
func (r *request) spend() *state.Spend {
	if r.Spend != nil {
		return r.Spend
	}
	c := r.by()
	if c.Proof.IsZero() {
		return nil
	}
	return &state.Spend{Proof: c.Proof, Until: c.ProofUntil}
}

func callerOf(c directory.Caller) caller { return caller(c) }

type registerRequest struct {
	Caller     caller               `cbor:"1,keyasint"`
	Agent      string               `cbor:"2,keyasint"`
	Kind       directory.Kind       `cbor:"3,keyasint"`
	Document   []byte               `cbor:"4,keyasint"` // may be at rest
	Lifetime   uint32               `cbor:"5,keyasint"`
	Visibility directory.Visibility `cbor:"6,keyasint"`
	IfMatch    []uint64             `cbor:"7,keyasint"`
	Present    bool                 `cbor:"8,keyasint,omitempty"`
	Absent     bool                 `cbor:"9,keyasint,omitempty"`
	Keep       bool                 `cbor:"10,keyasint,omitempty"` // the visibility of what is replaced
	Packed     *state.Packed        `cbor:"11,keyasint,omitempty"` // nil where the leader is to make it
	For        directory.Identity   `cbor:"12,keyasint,omitzero"`  // on whose behalf
}

type refreshRequest struct {
	Caller   caller        `cbor:"1,keyasint"`
	RID      directory.RID `cbor:"2,keyasint"`
	Lifetime uint32        `cbor:"3,keyasint"`
	Patch    []byte        `cbor:"4,keyasint"` // null for none
	IfMatch  []uint64      `cbor:"5,keyasint"`
	// Statement is what policy was asked about with Patch; 0 for any.
	Statement uint64 `cbor:"6,keyasint,omitempty"`
}

type renewRequest struct {
	Caller   caller         `cbor:"1,keyasint"`
	Renewals state.Renewals `cbor:"2,keyasint"`
}

type removeRequest struct {
	Caller  caller        `cbor:"1,keyasint"`
	RID     directory.RID `cbor:"2,keyasint"`
	IfMatch []uint64      `cbor:"3,keyasint"`
}

// A reply is what the leader answers: an outcome, or a refusal.
type reply struct {
	RID      directory.RID     `cbor:"1,keyasint"`
	Epoch    uint64            `cbor:"2,keyasint"`
	Revision uint64            `cbor:"3,keyasint"`
	Created  bool              `cbor:"4,keyasint"`
	Granted  uint32            `cbor:"5,keyasint"`
	Problem  directory.Problem `cbor:"6,keyasint,omitempty"`
	Detail   string            `cbor:"7,keyasint,omitempty"`
	Pointer  string            `cbor:"8,keyasint,omitempty"`
	// NotLeader says that nothing was done, since this member does not lead.
	NotLeader bool `cbor:"9,keyasint,omitempty"`
	// Of a RefreshMany: what was granted to each, 0 where it was refused, and why.
	Each    []uint32    `cbor:"10,keyasint,omitempty"`
	Refused []unrenewed `cbor:"11,keyasint,omitempty"`
	// Of a claim: the first answer to its key.
	Kept *state.Answer `cbor:"12,keyasint,omitempty"`
}

func replyOf(out directory.Outcome, err error) *reply {
	if err == nil {
		r := &reply{RID: out.RID, Epoch: out.Position.Epoch, Revision: out.Position.Revision, Created: out.Created, Granted: out.Granted}
		r.Each, r.Refused = packRenewed(out.Each)
		r.Kept = (*state.Answer)(out.Kept)
		return r
	}
	r := &reply{Problem: directory.ProblemOf(err), Detail: "the leader failed"}
	var e *directory.Error
	if errors.As(err, &e) {
		r.Detail, r.Pointer = e.Detail, e.Pointer
	}
	return r
}

func (r *reply) result() (directory.Outcome, error) {
	if r.Problem != "" {
		return directory.Outcome{}, &directory.Error{Problem: r.Problem, Detail: r.Detail, Pointer: r.Pointer}
	}
	at := directory.Position{Epoch: r.Epoch, Revision: r.Revision}
	each, err := unpackRenewed(r.Each, r.Refused)
	return directory.Outcome{RID: r.RID, Position: at, Created: r.Created, Granted: r.Granted, Each: each, Kept: (*directory.KeptAnswer)(r.Kept)}, err
}

// The forwarding server's routes, and the bound of a body.
const (
	presencePath = "/v1/presence"
	readPath     = "/v1/read"
	termPath     = "/v1/term"
	asidePath    = "/v1/aside"
	contactsPath = "/v1/contacts"
	maxBody      = 1 << 20
	typeCBOR     = "application/cbor"
)

// retryPause is how long a write waits before it looks for the leader again.
const retryPause = 20 * time.Millisecond

// write does a request here, or sends it to the leader: the one place that knows
// which. What nobody has begun is tried again while there is time.
func (s *Store) write(ctx context.Context, req *request) (directory.Outcome, error) {
	if why := s.outside.Load(); why != nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable, "this node is no member of its domain; nothing was changed: use another: %s", *why)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
	defer cancel()
	for {
		out, err := s.attempt(ctx, req)
		if !errors.Is(err, errNotLeader) {
			return out, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return out, directory.Refuse(directory.Unavailable, "the domain has no leader in reach; nothing was changed: try again: %w", err)
		case <-s.closing.Done():
			return out, directory.Refuse(directory.Unavailable, "this node is stopping; nothing was changed: use another")
		}
	}
}

func (s *Store) attempt(ctx context.Context, req *request) (directory.Outcome, error) {
	if s.leading.Load() {
		return s.lead(ctx, req)
	}
	if leader, ok := s.leader(); !ok || leader.ID == s.cfg.Node {
		return directory.Outcome{}, errNotLeader
	}
	return s.forward(ctx, req)
}

// post sends a message to a member and reads its answer. errNotLeader means that
// the member has done nothing with it, OutcomeUnknown that it may have.
func (s *Store) post(ctx context.Context, to Member, path string, message, answer wireMessage) error {
	body, err := s.writeMessage(message)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+to.Address+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the address of member %s: %w", to.ID, err)
	}
	req.Header.Set("Content-Type", typeCBOR)
	resp, err := s.cluster.client.Do(req)
	if err != nil {
		if sent {
			return unknown(err)
		}
		return fmt.Errorf("%w: %w", errNotLeader, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		if err == nil {
			err = readMessage(data, answer)
		}
		if err != nil {
			return unknown(err)
		}
		return nil
	case http.StatusMisdirectedRequest:
		return errNotLeader
	}
	return fmt.Errorf("%w: member %s answered %s", errNotLeader, to.ID, resp.Status)
}

// handler serves what other members send. Nobody else is let in, and who is a
// member no more gets no further answer over a connection that it still has.
func (s *Store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+presencePath, func(w http.ResponseWriter, r *http.Request) {
		var word presenceWord
		if !s.receive(w, r, s.raft.State() == raft.Leader, &word) {
			return
		}
		from, _ := peerID(r.TLS)
		s.presence.note(from, time.UnixMilli(word.Time), s.cfg.clock())
		var a presenceAnswer // of a leader that is not ready to lead, nobody learns how far the domain is
		if s.leading.Load() {
			at := s.Position()
			a = presenceAnswer{Epoch: at.Epoch, Revision: at.Revision}
			if now, err := s.stamp(); err == nil {
				a.Time = now
			}
			if s.Written().Wire > state.FirstVersion {
				a.presenceNext = nextPresence()
			}
		}
		s.answer(w, &a)
	})
	mux.HandleFunc("POST "+readPath, func(w http.ResponseWriter, r *http.Request) {
		if !s.receive(w, r, s.leading.Load(), &readWord{}) {
			return
		}
		at, err := s.confirmed.join(r.Context())
		if err != nil {
			s.refuse(w, errMisdirected)
			return
		}
		signal(s.batches.tell) // the reader waits for its member to be there
		s.answer(w, &presenceAnswer{Epoch: at.Epoch, Revision: at.Revision})
	})
	mux.HandleFunc("POST "+vouchPath, func(w http.ResponseWriter, r *http.Request) {
		var word vouchWord
		if s.receive(w, r, true, &word) {
			_, is := s.server(word.ID)
			s.answer(w, &vouchAnswer{is})
		}
	})
	mux.HandleFunc("POST "+asidePath, func(w http.ResponseWriter, r *http.Request) {
		var word asideWord
		if s.receive(w, r, s.leading.Load() && s.cfg.Aside != nil, &word) {
			s.answer(w, &asideWord{s.cfg.Aside(word.Text)})
		}
	})
	mux.HandleFunc("POST "+contactsPath, func(w http.ResponseWriter, r *http.Request) {
		if s.receive(w, r, s.leading.Load(), &contactsWord{}) {
			s.answer(w, s.contacts())
		}
	})
	mux.HandleFunc("POST "+restorePath, s.takeBackup)
	mux.HandleFunc("POST "+termPath, func(w http.ResponseWriter, r *http.Request) {
		if s.receive(w, r, true, &termWord{}) {
			s.answer(w, &termAnswer{s.raft.CurrentTerm()})
		}
	})
	routes := httpproblem.Routes(mux, s.cfg.API)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := peerID(r.TLS); !ok || !s.cluster.isMember(id) {
			s.refuse(w, directory.Refuse(directory.Forbidden, "%w", errNotMember))
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// receive reads a message, where this member leads.
func (s *Store) receive(w http.ResponseWriter, r *http.Request, leads bool, message wireMessage) bool {
	if !leads {
		s.refuse(w, errMisdirected)
		return false
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = readMessage(data, message)
	}
	if err != nil {
		s.refuse(w, directory.Refuse(directory.BadRequest, "this is not a message between members: %w", err))
		return false
	}
	return true
}

// errMisdirected is for another member, which then asks the leader.
var errMisdirected = directory.Refuse(httpproblem.Misdirected, "this member doesn't lead the domain; ask the leader")

// refuse answers another member with err's problem.
func (s *Store) refuse(w http.ResponseWriter, err error) { httpproblem.Write(w, s.cfg.API, err) }

func (s *Store) answer(w http.ResponseWriter, message wireMessage) {
	data, err := s.writeMessage(message)
	if err != nil {
		s.log.Error("encode an answer", "error", err)
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", typeCBOR)
	_, _ = w.Write(data) // a member that has gone asks again
}

type transferRequest struct {
	Caller    caller             `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Any       bool               `cbor:"4,keyasint,omitempty"`
	Statement uint64             `cbor:"5,keyasint"`
	IfMatch   []uint64           `cbor:"6,keyasint"`
}

func packRenewed(each []directory.Renewed) (granted []uint32, refused []unrenewed) {
	for i, r := range each {
		granted = append(granted, r.Granted)
		if r.Err != nil {
			why := replyOf(directory.Outcome{}, r.Err)
			refused = append(refused, unrenewed{uint32(i), why.Problem, why.Detail})
		}
	}
	return granted, refused
}

func unpackRenewed(granted []uint32, refused []unrenewed) ([]directory.Renewed, error) {
	if len(granted) == 0 {
		return nil, nil
	}
	each := make([]directory.Renewed, len(granted))
	for i, g := range granted {
		each[i].Granted = g
	}
	for _, r := range refused {
		if int(r.Item) >= len(each) {
			return nil, unknown(fmt.Errorf("the leader refused item %d of %d", r.Item, len(each)))
		}
		each[r.Item].Err = &directory.Error{Problem: r.Problem, Detail: r.Detail}
	}
	return each, nil
}

// unrenewed is an item of a RefreshMany that was refused.
type unrenewed struct {
	Item    uint32            `cbor:"1,keyasint"`
	Problem directory.Problem `cbor:"2,keyasint"`
	Detail  string            `cbor:"3,keyasint"`
}

// maxChanges is with how many changes a log entry takes no more lists, and a message to
// the leader nothing more: who waits for the next one waits until all of this are
// applied. One list is as much.
const maxChanges = directory.MaxRenewals
