package state

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// A Summary describes a snapshot without its secrets.
type Summary struct {
	Domain        spiffeid.TrustDomain
	Position      directory.Position
	Now           time.Time // the domain's committed time
	LedgerSize    uint64
	LedgerRoot    directory.Hash
	Registrations int
	Held          int // names that are held for their former owners
	Peers         []spiffeid.TrustDomain
	Members       []spiffeid.ID
	Policy        uint64         // revision of the policy in it; 0 if it has none of its own
	PolicyHash    directory.Hash // SHA-256 of that policy's text
	// Hash is over all registrations' contents and deadlines, and nothing else: a
	// restored domain has the same hash until a registration changes.
	Hash directory.Hash
}

// Inspect reads the items of a snapshot up to its streams and describes them, without any
// directory.
func Inspect(r io.Reader) (*Summary, error) {
	var header Header

	dec := NewDecoder(bufio.NewReaderSize(r, 1<<16))
	if err := dec.Decode(&header); err != nil {
		return nil, err
	}

	if !readsSnapshot(header.Version) {
		return nil, NewerSnapshot(header.Version, NewestSnapshotVersion)
	}

	domain, err := spiffeid.TrustDomainFromString(header.Domain)
	if err != nil {
		return nil, fmt.Errorf("the domain is %q: %w", header.Domain, err)
	}

	if !header.whole() {
		return nil, errors.New("the header contradicts itself")
	}

	info := &Summary{
		Domain:     domain,
		Position:   directory.Position{Epoch: header.Epoch, Revision: header.Revision},
		Now:        time.UnixMilli(header.Now),
		LedgerSize: header.Size,
		LedgerRoot: (&ledger.Frontier{Size: header.Size, Edges: header.Edges}).Root(),
		Held:       header.Holds,
	}

	if text := header.Text; text != nil && text.Revision > 0 {
		info.Policy = text.Revision
		info.PolicyHash = directory.HashOf(text.Text)
	}

	if err := info.readItems(dec, &header); err != nil {
		return nil, err
	}

	return info, nil
}

// readItems counts and hashes the items.
func (s *Summary) readItems(dec decoder, header *Header) error {
	contents := sha256.New()

	var damaged error

	// Items that count for nothing are decoded, too, because only that finds the next ones.
	err := errors.Join(
		decodeEach(dec, header.Peerings, func(p Peer) { s.Peers = append(s.Peers, p.Domain) }),
		decodeEach(dec, header.Keys, func(k keySnapshot) {
			if k.Until == 0 {
				s.Members = append(s.Members, k.Node)
			}
		}),
		decodeEach(dec, header.Formers, func(former) {}),
		decodeEach(dec, header.Holds, func(hold) {}),
		decodeEach(dec, header.Members, func(Member) {}),
		decodeEach(dec, header.Admitted, func(Admission) {}),
		decodeEach(dec, header.Standing, func(Admission) {}),
		decodeEach(dec, header.Spent, func(Spend) {}),
		decodeEach(dec, header.Ordered, func(Spend) {}),
		decodeEach(dec, header.Claims, func(claimed) {}),
		decodeEach(dec, header.Offers, func(openOffer) {}),
		decodeEach(dec, header.Decided, func(Command) {}),
		decodeEach(dec, header.Cosigned, func(CosignedLog) {}),
		decodeEach(dec, header.Erased, func(Erasure) {}),
		decodeEach(dec, header.Regs, func(item regSnapshot) {
			s.Registrations++

			if damaged == nil {
				damaged = item.sum(contents)
			}
		}),
	)
	s.Hash = directory.Hash(contents.Sum(nil))

	return errors.Join(err, damaged)
}

// whole reports whether the number of the ledger's edges is the number of bits set in its size.
func (h *Header) whole() bool {
	bits := 0
	for n := h.Size; n > 0; n &= n - 1 {
		bits++
	}

	return len(h.Edges) == bits
}

// sum adds a registration's contents to a hash, without the parts that an epoch decides,
// and regardless of compression.
func (w *regSnapshot) sum(to hash.Hash) error {
	document, err := directory.LoadStored(w.Kind, w.Document)
	if err != nil {
		return fmt.Errorf("registration %s: %w", w.RID, err)
	}

	data, err := Marshal(struct {
		RID        directory.RID        `cbor:"1,keyasint"`
		Agent      string               `cbor:"2,keyasint"`
		Owner      directory.Identity   `cbor:"3,keyasint"`
		Kind       directory.Kind       `cbor:"4,keyasint"`
		Document   []byte               `cbor:"5,keyasint"`
		Visibility directory.Visibility `cbor:"6,keyasint"`
		Registered int64                `cbor:"7,keyasint"`
		Expires    int64                `cbor:"8,keyasint"`
	}{w.RID, w.Agent, w.Owner, w.Kind, document.Bytes(), w.Visibility, w.RegisteredAt, w.ExpiresAt})

	// It never fails, because the values were decoded from the same.
	if err == nil {
		_, _ = to.Write(data)
	}

	return err
}
