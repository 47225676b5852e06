package state

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Stated is a statement that was appended to the ledger.
type Stated struct {
	RID   directory.RID
	Epoch uint64
	Index uint64 // of its entry
	At    int64  // Unix seconds
	H     directory.Hash

	reg *Registration // nil for that of an end
	end []byte        // its payload
}

// state appends a statement to the ledger: of a registration, or of its end.
func (h *History) state(rid directory.RID, hash directory.Hash, reg *Registration, payload []byte) {
	at := Stated{RID: rid, Epoch: h.epoch, Index: h.ledger.Size, At: h.now / 1000, H: hash, reg: reg}
	if reg == nil {
		at.end = payload
	}

	h.stated = append(h.stated, at)
}

// Agent returns the name of the registration; empty for that of an end.
func (s *Stated) Agent() string {
	if s.reg == nil {
		return ""
	}

	return s.reg.entry.Agent
}

// kept is a statement as it lies on disk.
type kept struct {
	Registration *regSnapshot `cbor:"1,keyasint,omitempty"`
	End          []byte       `cbor:"2,keyasint,omitempty"`
}

// Keep returns the statement with its contents, for Kept. It may be called beside Apply.
func (s *Stated) Keep() []byte {
	item := kept{End: s.end}
	if s.reg != nil {
		frozen := s.reg.freeze()
		frozen.Grants = nil
		item.Registration = &frozen
	}

	data, err := Marshal(&item)
	if err != nil {
		panic(err) // a registration is in every snapshot
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
