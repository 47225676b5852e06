package consensus

import (
	"context"

	"github.com/roster-mesh/roster/directory"
)

// transfer makes a registration another identity's and changes nothing else of it:
// nothing else changes an owner (TRUST-008).
type transfer struct {
	Format    int                `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	Salt      directory.Salt     `cbor:"3,keyasint"`
	Caller    directory.Identity `cbor:"4,keyasint"`
	Any       bool               `cbor:"5,keyasint,omitempty"` // the caller may give away what others own
	Statement uint64             `cbor:"6,keyasint"`           // which contents policy was asked about
	IfMatch   []uint64           `cbor:"7,keyasint"`
	Granted   granted            `cbor:"8,keyasint"` // its owner is the new one
	Made      *made              `cbor:"9,keyasint,omitempty"`
}

type transferRequest struct {
	Caller    caller             `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Any       bool               `cbor:"4,keyasint,omitempty"`
	Statement uint64             `cbor:"5,keyasint"`
	IfMatch   []uint64           `cbor:"6,keyasint"`
}

// TransferOwner makes a registration another identity's. That it is that one's
// already changes nothing, and is no error. Overtaken says that it has other contents
// than policy was asked about.
func (s *Store) TransferOwner(ctx context.Context, t directory.Transferring) (directory.Outcome, error) {
	return s.write(ctx, &request{Transfer: &transferRequest{callerOf(t.Caller), t.RID, t.To, t.Any, t.Statement, t.IfMatch}})
}

func (s *Store) prepareTransfer(r *transferRequest) (*command, error) {
	s.mu.RLock()
	reg, err := s.state.owned(r.RID, r.Caller.Identity, r.Any, r.IfMatch)
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	e := &reg.entry
	if e.Statement != r.Statement {
		return nil, overtaken("registration %s has changed since policy was asked about it", e.RID)
	}
	p, err := directory.Reproject(e.Agent, e.Document)
	if err != nil {
		return nil, err
	}
	subject := Subject{e.RID, e.Agent, r.To, e.Document, p, e.Visibility}
	c := &transfer{
		Format: s.statementFormat(), RID: e.RID, Salt: newSalt(), Caller: r.Caller.Identity, Any: r.Any,
		Statement: e.Statement, IfMatch: r.IfMatch, Granted: s.decide(subject), Made: &made{Packed: pack(e.Document, p)},
	}
	if err := s.roomFor(c.demand(reg)); err != nil {
		return nil, err
	}
	c.Made.complete(&subject, c.provenance(reg), c.Salt, c.Granted)
	return &command{Transfer: c}, nil
}

// transfer gives a registration a statement with another owner. Its deadline stays.
func (s *state) transfer(c *transfer) (directory.Outcome, error) {
	old, err := s.owned(c.RID, c.Caller, c.Any, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}
	e, owner := old.entry, c.Granted.Owner
	switch {
	case e.Owner == owner:
		return directory.Outcome{RID: e.RID, Granted: e.Lifetime}, nil
	case e.Statement != c.Statement || s.policy != c.Granted.Policy || c.Format != s.statementFormat():
		return directory.Outcome{}, errMoved
	}
	if err := s.affords(c.demand(old)); err != nil {
		return directory.Outcome{}, err
	}
	e.Owner = owner
	return s.put(old, &e, contents{
		format: c.Format, kind: e.Document.Kind(), document: e.Document.Bytes(), salt: c.Salt,
		lifetime: e.Lifetime, deadline: e.ExpiresAt, grants: c.Granted.grants(), until: old.until, made: c.Made,
		provenance: c.provenance(old),
	})
}
