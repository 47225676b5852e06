package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Fetched record is one whose bytes match its name.
type Fetched struct {
	*store.Record
	From spiffeid.TrustDomain
	At   time.Time
}

// A Gate validates records whose bytes match their names: the one gate for the bytes of other
// domains' records. The document must be valid for its kind, and the statement must agree with its page.
type Gate struct {
	Dialect signed.Dialect
	Inside  func(directory.Identity) bool // whether an identity is of this domain
	Panics  *contain.Panics
}

// Open puts the fetched records through the record gate, outside of any
// lock or transaction.
func (g *Gate) Open(ctx context.Context, origin spiffeid.TrustDomain, page *signed.Page,
	records map[protocol.RecordName]Fetched) map[directory.RID]store.Arrival {
	_, step := span.Start(ctx, span.Open)
	defer step.End()

	step.Items(len(records))

	all := make([]store.Arrival, len(page.Digests))
	limit.Parallel(len(all), func(i int) {
		digest := page.Digests[i]
		if rec, ok := records[protocol.NameOf(digest)]; ok && digest.Live() {
			name := protocol.NameOf(digest)
			opened := store.Arrival{Asked: name, Stored: rec.Record.Stored(name), From: rec.From, At: rec.At}

			opened.Entry, opened.Err = g.OpenEntry(contain.Record, origin, page.Epoch, digest, rec.Record,
				kinds.Project)
			if errors.Is(opened.Err, signed.ErrUnsupported) {
				opened.Format, opened.Err = store.FormatOf(opened.Err), nil
			}

			all[i] = opened
		}
	})

	out := make(map[directory.RID]store.Arrival, len(records))
	for i, rec := range all {
		if rec.Stored != nil {
			out[page.Digests[i].RID] = rec
		}
	}

	return out
}

// OpenEntry validates a record: its statement must agree with its page, and its document
// must be valid for its kind. A record of an unknown kind is kept and passed on but not
// shown, so the entry is nil without an error. ErrUnsupported means the same for a record in
// a later format, if the members up to its epoch agree with the page. project is
// kinds.Project, or kinds.Reproject for a record that was accepted before.
//
// A panic is a fault of this release and not of the sender. The record is then kept and passed on
// but not shown, and the next start, perhaps of a later release, opens it again.
func (g *Gate) OpenEntry(place contain.Place, origin spiffeid.TrustDomain, epoch uint64, digest signed.Digest,
	record *store.Record, project func(string, directory.Document) (*directory.Projection, error)) (
	entry *directory.Entry, err error) {
	err = g.Panics.Run(place, func() (err error) {
		entry, err = g.openEntry(origin, epoch, digest, record, project)
		return err
	})

	if contained := (*contain.Error)(nil); errors.As(err, &contained) {
		return nil, nil
	}

	return entry, err
}

func (g *Gate) openEntry(origin spiffeid.TrustDomain, epoch uint64, digest signed.Digest, r *store.Record,
	project func(string, directory.Document) (*directory.Projection, error)) (*directory.Entry, error) {
	contents, err := g.Dialect.OpenNamed(r.Payload, r.Disclosures, digest.H, digest.M)

	unsupported := errors.Is(err, signed.ErrUnsupported)
	if err != nil && !unsupported {
		return nil, err
	}

	if contents.Issuer != origin || contents.RID != digest.RID || contents.Epoch != epoch ||
		contents.Revision > digest.Revision || contents.Op != signed.OpPut {
		return nil, ErrRecord
	}

	if unsupported {
		return nil, err
	}

	// Only this domain may make statements about its identities, and those of its own token issuers
	// (threats.md, S5).
	for _, named := range append(contents.Provenance.Identities(), contents.Owner) {
		if g.Inside(named) {
			return nil, fmt.Errorf("%w: %.100q", ErrOwnIdentity, named)
		}
	}

	if max(contents.IssuedAt, contents.Since) > protocol.MaxTime { // a statement has none before 1970
		return nil, protocol.ErrTime
	}

	if _, err := directory.ParseKind(string(contents.Document.Kind())); err != nil {
		return nil, nil
	}

	projection, err := project(contents.Agent, contents.Document)
	if err != nil {
		return nil, err
	}

	entry := &directory.Entry{
		Origin: origin, RID: contents.RID, Agent: contents.Agent, Owner: contents.Owner, Document: contents.Document,
		Packed:       directory.Pack(contents.Document, projection),
		RegisteredAt: contents.Since * 1000, UpdatedAt: contents.IssuedAt * 1000, Statement: contents.Revision,
		Redacted: contents.Redacted, Received: &directory.Received{Leaf: contents.Leaf},
	}
	if !contents.Provenance.IsZero() {
		provenance := contents.Provenance // contents are let go of
		entry.Provenance = &provenance
	}

	entry.Compact()

	return entry, nil
}

// ErrRecord means that the statement of a record disagrees with its page.
var ErrRecord = errors.New("the record differs from its page")

// ErrOwnIdentity means that a record of another domain names an identity of this one.
var ErrOwnIdentity = errors.New("a record of a peer names an identity of this domain as owner or registrant")
