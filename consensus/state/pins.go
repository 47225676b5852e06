package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// auditPinEvery is the least committed time, in seconds, between two pins of a member's audit log: nodes try
// again at intervals, and no member's key may fill the ledger.
const auditPinEvery = 24 * 60 * 60

// A Pin puts a fact about the domain into its ledger that no change states: with Node the head of that
// member's audit log, and without it the authorities of the domain itself.
type Pin struct {
	Bundle []byte         `cbor:"1,keyasint,omitempty"` // JWKS
	Node   spiffeid.ID    `cbor:"2,keyasint,omitzero"`
	Lines  uint64         `cbor:"3,keyasint,omitempty"` // number of the last line
	Head   directory.Hash `cbor:"4,keyasint,omitzero"`  // of the last line
}

// Pins are the facts that the ledger of the epoch has beside the domain's changes.
type Pins struct {
	history *History

	bundle  directory.Hash        // of the bundle that was pinned last; zero if none was
	audited map[spiffeid.ID]int64 // when members' audit logs were pinned, Unix seconds of committed time
	payload []byte                // of the last pin
}

// pinned are the pins in a snapshot.
type pinned struct {
	Bundle  directory.Hash `cbor:"1,keyasint,omitzero"`
	Audited []auditPin     `cbor:"2,keyasint,omitempty"` // sorted by node
}

type auditPin struct {
	Node spiffeid.ID `cbor:"1,keyasint"`
	At   int64       `cbor:"2,keyasint"`
}

// HasBundle reports whether the bundle that was pinned last has a hash.
func (p *Pins) HasBundle(bundle directory.Hash) bool { return p.bundle == bundle }

// AuditDue reports whether a member's audit log can be pinned again. A pin of the future is of before a step of the
// clocks (rule T2), and delays none.
func (p *Pins) AuditDue(node spiffeid.ID) bool {
	at, known := p.audited[node]
	since := p.history.now/1000 - at

	return !known || since < 0 || since >= auditPinEvery
}

// Check refuses a pin that is malformed, repeats the last one, or comes too early.
func (p *Pins) Check(pin *Pin) error {
	switch {
	case pin.Node.IsZero() && len(pin.Bundle) == 0, !pin.Node.IsZero() && (pin.Lines == 0 || len(pin.Bundle) > 0):
		return directory.Refuse(directory.BadRequest, "a pin has a bundle, or the node and the head of an audit log")
	case len(pin.Bundle) > maxBundle:
		return directory.Refuse(directory.TooLarge, "a bundle has at most %d bytes, and this one has %d", maxBundle,
			len(pin.Bundle))
	case pin.Node.IsZero() && p.HasBundle(directory.HashOf(pin.Bundle)):
		return directory.Refuse(directory.Conflict, "the ledger has this bundle already")
	case !pin.Node.IsZero() && !p.AuditDue(pin.Node):
		return directory.Refuse(directory.Conflict, "the ledger has an audit head of %s of the last day already",
			pin.Node)
	}

	return nil
}

// pin appends an entry to the ledger. The revision moves, so that members record it.
func (p *Pins) pin(pin *Pin) error {
	if err := p.Check(pin); err != nil {
		return err
	}

	p.history.next()

	if pin.Node.IsZero() {
		p.bundle, p.payload = directory.HashOf(pin.Bundle), pin.Bundle
		p.history.log(ledger.Bundle, p.payload)

		return nil
	}

	// Older times delay no pin any more. Without them the map doesn't keep members that have left.
	maps.DeleteFunc(p.audited, func(node spiffeid.ID, _ int64) bool { return p.AuditDue(node) })

	p.audited[pin.Node] = p.history.now / 1000
	p.payload = p.auditHead(pin)
	p.history.log(ledger.AuditHead, p.payload)

	return nil
}

// auditHead is {v, iss, epoch, at, node, lines, head}.
func (p *Pins) auditHead(pin *Pin) []byte {
	data := strictjson.AppendUint([]byte{'{'}, "v", 1)
	data = strictjson.AppendText(data, "iss", p.history.domain.IDString())
	data = strictjson.AppendUint(data, "epoch", p.history.epoch)
	data = strictjson.AppendUint(data, "at", uint64(p.history.now/1000))
	data = strictjson.AppendText(data, "node", pin.Node.String())
	data = strictjson.AppendUint(data, "lines", pin.Lines)

	return append(strictjson.AppendText(data, "head", pin.Head.String()), '}')
}

// forget forgets all pins, because the ledger of a new epoch has none.
func (p *Pins) forget() { p.bundle, p.audited = directory.Hash{}, map[spiffeid.ID]int64{} }

func (p *Pins) snapshot() pinned {
	sn := pinned{Bundle: p.bundle}
	for node, at := range p.audited {
		sn.Audited = append(sn.Audited, auditPin{node, at})
	}

	slices.SortFunc(sn.Audited, func(a, b auditPin) int { return cmp.Compare(a.Node.String(), b.Node.String()) })

	return sn
}

func (p *Pins) restore(sn pinned) {
	p.forget()

	p.bundle = sn.Bundle
	for _, pin := range sn.Audited {
		p.audited[pin.Node] = pin.At
	}
}
