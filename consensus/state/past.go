package state

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Past is a statement that is no longer that of a registration: another one follows it, or it is that of
// the end. The contents of all others are in the state.
type Past struct {
	RID   directory.RID
	Agent string
	Epoch uint64
	Index uint64 // of its entry
	At    int64  // Unix seconds
	Until int64  // Unix seconds: when another one followed
	H     directory.Hash

	reg *Registration // nil for that of an end
	end []byte        // its payload
}

// Past returns the registration's statement, as one that ends at a time in Unix seconds.
func (r *Registration) Past(until int64) Past {
	return Past{
		RID: r.entry.RID, Agent: r.entry.Agent, Epoch: r.epoch, Index: r.leaf, At: r.issued, Until: until, H: r.h,
		reg: r,
	}
}

// follow notes that the statement of a registration has ended or is followed by another one.
func (h *History) follow(reg *Registration) { h.past = append(h.past, reg.Past(h.now/1000)) }

// end notes the statement of a registration's end, which the next entry of the ledger is of.
func (h *History) end(reg *Registration, hash directory.Hash, payload []byte) {
	h.past = append(h.past, Past{
		RID: reg.entry.RID, Agent: reg.entry.Agent, Epoch: h.epoch, Index: h.ledger.Size, At: h.now / 1000,
		Until: h.now / 1000, H: hash, end: payload,
	})
}

// Lost returns the statements of registrations that another state in the place of this one does not have,
// as after the restore of a backup.
func (r *Registrations) Lost(next *Registrations) (lost []Past) {
	for reg := range r.regs.each() {
		if other := next.regs.get(reg.entry.RID); other == nil || other.h != reg.h {
			lost = append(lost, reg.Past(r.history.now/1000))
		}
	}

	return lost
}

// Size returns about how many bytes the contents take.
func (p *Past) Size() int {
	if p.reg == nil {
		return len(p.end)
	}

	return len(p.reg.entry.Document.StoredBytes())
}

// kept is a statement as it lies on disk.
type kept struct {
	Registration *regSnapshot `cbor:"1,keyasint,omitempty"`
	End          []byte       `cbor:"2,keyasint,omitempty"`
}

// Keep returns the statement with its contents, for Kept. It may be called beside Apply.
func (p *Past) Keep() []byte {
	item := kept{End: p.end}
	if p.reg != nil {
		frozen := p.reg.freeze()
		frozen.Grants = nil
		item.Registration = &frozen
	}

	data, err := Marshal(&item)
	if err != nil {
		// It never fails, because snapshots encode registrations as well.
		panic(err)
	}

	return data
}

// Kept returns the payload of a statement that was kept, and its registration at that time with all its
// disclosures; nil for that of an end.
func Kept(domain spiffeid.TrustDomain, data []byte) (
	payload []byte, disclosures []string, entry *directory.Entry, err error,
) {
	var item kept
	if err := Unmarshal(data, &item); err != nil {
		return nil, nil, nil, err
	}

	if item.Registration == nil {
		return item.End, nil, nil, nil
	}

	reg, err := item.Registration.thaw(domain)
	if err != nil {
		return nil, nil, nil, err
	}

	payload, disclosures, ok := reg.Statement(directory.Grant{All: true})
	if !ok {
		return nil, nil, nil, fmt.Errorf("%w of registration %s", errUnknownFormat, reg.entry.RID)
	}

	return payload, disclosures, &reg.entry, nil
}
